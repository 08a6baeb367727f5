"""Hosts on one machine: network namespaces on a bridge, each with its sshd, link and cores."""

from ringside.lab.lab import Lab
from ringside.lab.link import format_rate, parse_rate
from ringside.lab.names import LabHost

__all__ = ["Lab", "LabHost", "format_rate", "parse_rate"]
