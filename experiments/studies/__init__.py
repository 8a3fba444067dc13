"""The sweeps that come with the suite: one readable module per study."""
