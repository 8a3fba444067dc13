"""Where hosts come from and how a fork server gets onto each of them: one room per site."""
