"""The launchers' ends of the lines to the fork servers on the hosts."""
