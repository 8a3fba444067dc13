"""What is run: sweeps, their execution, and one readable module per study."""
