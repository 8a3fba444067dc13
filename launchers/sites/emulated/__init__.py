"""Hosts that exist on this machine only: network namespaces behind a switch.

`held_network` is the launcher's end, `network_process` the program that keeps a network for as
long as it lives; the kernel removes all of it afterwards.
"""
