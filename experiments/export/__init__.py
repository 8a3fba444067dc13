"""A measured setting as a training of the user's own."""
