"""What single steps tell: how much they vary, and the parts of a mean one."""
