"""What larger clusters and other links would do, from launches that were measured."""
