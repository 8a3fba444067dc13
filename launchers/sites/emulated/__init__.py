"""Hosts that exist on this machine only: network namespaces behind a switch.

Decides nothing itself.  `network` is the launcher's side, `holder` the program that holds a
network for as long as it lives; the kernel removes all of it afterwards.
"""
