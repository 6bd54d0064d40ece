"""The roles of a job as the command line declares them, as values; what contradicts itself is refused here (pure).

--roles=chief:1,ps:2,worker:2:8,evaluator:0:1          nodes per role, one number or MIN:MAX; the first come first
--role-options=ps:on-loss=one,counts=no                what else is so of one role; once for each
--role-command='ps:ps.py --port 2222'                  what its workers run; once for each
--node-role=ps                                         this node takes that role and no other
"""

import dataclasses
import re
import shlex
from collections.abc import Sequence
from typing import get_args

from ...adapters.plain import Plain
from ...rendezvous.roles import MAX_ROLES, OnLoss, Role
from ..errors import UsageError
from ..settings import Nodes
from .flags import Scanned, did_you_mean

NODES_DIGITS, NPROC_DIGITS = 6, 5
"""Of the largest number of nodes of a role, and of workers on one of its nodes."""

_KEYS = ("nproc", "on-loss", "counts")

_NOT_WITH_ROLES = {
    "role": "a role's workers have its own name as ROLE_NAME: leave it out, or write --node-role for this node's role",
    "node-rank": "ranks follow the roles: write --node-role for this node's role",
    "node-unit": "a role's range is in nodes: leave it out",
}


def read(scanned: Scanned, adapter: Plain) -> tuple[Role, ...]:
    """The declared roles, with the adapter's options and the user's; empty where there are none. Raises UsageError."""
    text = scanned.text("roles")
    if text is None:
        for name in ("role-options", "role-command", "node-role"):
            if scanned.has(name):
                raise UsageError(f"{scanned.source(name)}: there is no role without --roles=NAME:NODES,...")
        return ()
    roles = [_role(part.strip(), scanned.source("roles")) for part in text.split(",")]
    names = [role.name for role in roles]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{scanned.source('roles')}: {twice} stands there twice")
    if len(roles) > MAX_ROLES:
        raise UsageError(f"{scanned.source('roles')}: a job has at most {MAX_ROLES} roles")
    try:
        usual = adapter.role_options({role.name: role.max_nodes for role in roles})
    except ValueError as error:
        raise UsageError(f"{scanned.source('roles')}: {error}") from None
    roles = [
        _with_options(role, usual[role.name], f"the adapter for {adapter.name}") if usual.get(role.name) else role
        for role in roles
    ]
    for flag in ("role-options", "role-command"):
        seen: set[str] = set()
        for words in scanned.texts(flag):
            name, colon, rest = words.partition(":")
            source = f"--{flag}={words}"
            if not colon:
                raise UsageError(f"{source} has no colon after the name of a role: write --{flag}={names[0]}:VALUE")
            if name not in names:
                raise UsageError(f"{source} begins with no role of --roles{did_you_mean(name, names)}")
            if name in seen:
                raise UsageError(f"--{flag} is given twice for the role {name}: write all in one")
            seen.add(name)
            index = names.index(name)
            change = _with_options if flag == "role-options" else _with_command
            roles[index] = change(roles[index], rest, source)
    if not any(role.counts and role.min_nodes for role in roles):
        raise UsageError(
            f"{scanned.source('roles')}: no role that must be there counts for success: the job would never be done"
        )
    for name, why in _NOT_WITH_ROLES.items():
        if scanned.has(name):
            raise UsageError(f"{scanned.source(name)} contradicts --roles: {why}")
    return tuple(roles)


def nodes(roles: Sequence[Role], scanned: Scanned, given: Nodes | None) -> Nodes:
    """How many nodes these roles have in all. Raises UsageError where `given` (--nnodes) says otherwise."""
    total = Nodes(sum(role.min_nodes for role in roles), sum(role.max_nodes for role in roles), 1)
    if given is not None and (given.minimum, given.maximum) != (total.minimum, total.maximum):
        raise UsageError(f"{scanned.source('nnodes')} contradicts --roles, whose sum is {total}: leave --nnodes out")
    if scanned.has("standalone") and total.maximum > 1:
        raise UsageError(
            f"{scanned.source('standalone')} means this machine only, and the roles have {total} nodes: leave out one "
            "of them"
        )
    return total


def node_role(roles: Sequence[Role], scanned: Scanned) -> str:
    """The only role that this node takes; empty: any. Raises UsageError."""
    name = scanned.text("node-role") or ""
    names = [role.name for role in roles]
    if name and name not in names:
        raise UsageError(
            f"{scanned.source('node-role')} is no role of --roles: they are {', '.join(names)}"
            f"{did_you_mean(name, names)}"
        )
    return name


def canonical(roles: Sequence[Role]) -> str:
    """All that was declared, in one way of many to write it: equal on every node of a job."""
    return "; ".join(
        " ".join(
            [
                f"{role.name}:{role.min_nodes}:{role.max_nodes}",
                *([f"nproc={role.nproc}"] if role.nproc else []),
                *([f"on-loss={role.on_loss}"] if role.on_loss != "all" else []),
                *(["counts=no"] if not role.counts else []),
                *([f"command={shlex.join(role.command)}"] if role.command else []),
            ]
        )
        for role in roles
    )


def _role(text: str, source: str) -> Role:
    match = re.fullmatch(r"([A-Za-z][A-Za-z0-9_.-]{0,62}):([0-9]+)(?::([0-9]+))?", text)
    if not match:
        raise UsageError(f"{source}: {text!r} is neither NAME:NODES nor NAME:MIN:MAX: write for example worker:2:8")
    if any(len(number.lstrip("0")) > NODES_DIGITS for number in match.groups()[1:] if number):
        raise UsageError(f"{source}: {text} is more nodes than a role can have: at most {10**NODES_DIGITS - 1}")
    least, most = int(match[2]), int(match[3] or match[2])
    if most < 1:
        raise UsageError(f"{source}: {text} allows no node: leave the role out, or give it a maximum of 1 or more")
    if least > most:
        raise UsageError(f"{source}: {text} has a minimum above its maximum: write {match[1]}:{most}:{least}")
    return Role(match[1], least, most)


def _with_options(role: Role, text: str, source: str) -> Role:
    keys = [pair.partition("=")[0].strip() for pair in text.split(",")]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise UsageError(f"{source}: {twice} stands there twice")
    for pair in text.split(","):
        key, _, value = (part.strip() for part in pair.partition("="))
        if key == "nproc" and re.fullmatch(r"[1-9][0-9]*", value):
            if len(value) > NPROC_DIGITS:
                raise UsageError(
                    f"{source}: {value} is more workers than a node can have: at most {10**NPROC_DIGITS - 1}"
                )
            role = dataclasses.replace(role, nproc=int(value))
        elif key == "on-loss" and value in get_args(OnLoss):
            role = dataclasses.replace(role, on_loss="one" if value == "one" else "all")
        elif key == "counts" and value in ("yes", "no"):
            role = dataclasses.replace(role, counts=value == "yes")
        else:
            raise UsageError(
                f"{source}: {pair.strip()!r} is not one of nproc=NUMBER, on-loss=all, on-loss=one, counts=yes, "
                f"counts=no{'' if key in _KEYS else did_you_mean(key, _KEYS)}"
            )
    return role


def _with_command(role: Role, text: str, source: str) -> Role:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"{source} cannot be split into words: {error}") from None
    if not words:
        raise UsageError(f"{source} has no command: write --role-command='{role.name}:SCRIPT ARGUMENTS'")
    return dataclasses.replace(role, command=words)
