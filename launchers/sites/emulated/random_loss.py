"""Packets that a port of an emulated switch loses at random.

Decides which packets, and how the kernel is told: a classic BPF program in front of the port's
queue draws a number for every packet with payload.  pyroute2 can only hand over extended programs,
which ordinary users may not load, so the one message that this takes is made here.

Sources: struct sock_filter in linux/filter.h; TCA_BPF_* in linux/pkt_cls.h; cls_bpf_classify in
Linux, net/sched/cls_bpf.c.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Any

from pyroute2 import NetlinkError  # type: ignore[import-untyped]

from ps_allreduce.errors import UserError

#: Where clsact hangs filters on what an interface sends, and its own place (linux/pkt_sched.h).
EGRESS, CLSACT = 0xFFFFFFF3, 0xFFFFFFF1

#: An acknowledgement without payload is shorter, whatever options it has.
LONGEST_WITHOUT_PAYLOAD = 200

#: Load the length of a packet, load a word, jump if greater (or equal), return.
_LENGTH, _WORD, _IF_GREATER, _IF_AT_LEAST, _RETURN = 0x80, 0x20, 0x25, 0x35, 0x06

#: The word at this place is drawn anew for every packet (SKF_AD_OFF + SKF_AD_RANDOM).
_RANDOM = 0xFFFFF000 + 56

#: What becomes of a packet: TC_ACT_OK and TC_ACT_SHOT.
_KEEP, _LOSE = 0, 2

_KIND, _OPTIONS = 1, 2

_OPS_LEN, _OPS, _FLAGS = 4, 5, 8

#: The program says itself what becomes of a packet (TCA_BPF_FLAG_ACT_DIRECT).
_DIRECT = 1

_NEW_FILTER, _REQUEST_ACK_CREATE_EXCLUSIVE = 44, 0x605

#: The first of all filters, for packets of every protocol (ETH_P_ALL).
_FIRST_OF_ALL = 1 << 16 | socket.htons(3)


def lose_at_random(ip: Any, index: int, share: float) -> None:
    """Have an interface lose this share of what it sends with payload, instead of as before.

    Args:
        ip: pyroute2.IPRoute in the interface's network namespace, which is that of this thread.

    Raises:
        UserError: the kernel cannot do it.
    """
    try:
        ip.tc("del", "clsact", index)
    except NetlinkError as error:
        if error.code not in (errno.ENOENT, errno.EINVAL):  # there is none
            raise
    if not share:
        return
    try:
        ip.tc("add", "clsact", index)
        _add_filter(index, program(share))
    except (NetlinkError, OSError) as error:
        raise UserError(
            f"this kernel cannot lose packets at random ({error}): ask for a network without "
            "--loss, or have root load the modules (modprobe sch_ingress cls_bpf)."
        ) from error


def program(share: float) -> list[tuple[int, int, int, int]]:
    """The instructions: each a code, by how many to jump if true or false, and a value."""
    return [
        (_LENGTH, 0, 0, 0),
        (_IF_GREATER, 0, 3, LONGEST_WITHOUT_PAYLOAD),
        (_WORD, 0, 0, _RANDOM),
        (_IF_AT_LEAST, 1, 0, round(share * 2**32)),
        (_RETURN, 0, 0, _LOSE),
        (_RETURN, 0, 0, _KEEP),
    ]


def _add_filter(index: int, instructions: list[tuple[int, int, int, int]]) -> None:
    code = b"".join(struct.pack("HBBI", *each) for each in instructions)
    options = (
        _attribute(_OPS_LEN, struct.pack("H", len(instructions)))
        + _attribute(_OPS, code)
        + _attribute(_FLAGS, struct.pack("I", _DIRECT))
    )
    place = struct.pack("BxxxiIII", socket.AF_UNSPEC, index, 0, EGRESS, _FIRST_OF_ALL)
    body = place + _attribute(_KIND, b"bpf\0") + _attribute(_OPTIONS, options)
    head = struct.pack("IHHII", 16 + len(body), _NEW_FILTER, _REQUEST_ACK_CREATE_EXCLUSIVE, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(head + body)
        (code_of_error,) = struct.unpack_from("i", kernel.recv(1 << 16), 16)
    if code_of_error:
        raise OSError(-code_of_error, os.strerror(-code_of_error))


def _attribute(kind: int, value: bytes) -> bytes:
    """One of netlink's attributes, filled up to a multiple of four bytes."""
    return struct.pack("HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
