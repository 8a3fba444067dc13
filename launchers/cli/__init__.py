"""What the command lines of the suite share: types of options, groups of them, and how they end."""
