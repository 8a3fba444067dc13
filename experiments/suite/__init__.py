"""Studies of the suite itself: what it costs, and how far its results can be trusted."""
