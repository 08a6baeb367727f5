"""Hosts on one machine: network namespaces on a bridge, each with its sshd, link and cores."""
