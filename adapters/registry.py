"""Finds a framework's adapter: built in, of an installed package (an entry point), or of a file (`FILE.py:CLASS`)."""

import re
import runpy
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, cast, get_origin, get_type_hints

from ..rendezvous.base.errors import ElasticRunError
from .contract import MOST_WORKER_PORTS, Accelerators, Hint, Peer, Round, Service, Worker
from .plain import Plain

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "elastic_run.adapters"
"""The group of entry points. A point's name is the framework's; its object is called without arguments, and returns the
adapter: a class will do."""

BUILT_IN: Mapping[str, str] = {
    "torch": "torch.adapter:Torch",
    "horovod": "horovod.adapter:Horovod",
    "jax": "jax.adapter:Jax",
    "tensorflow": "tensorflow.adapter:TensorFlow",
    "xgboost": "xgboost.adapter:XGBoost",
    "none": "plain:Plain",
}
"""The module and the class of each: a job loads that of its own framework."""


class NoAdapter(ElasticRunError):
    """`--framework` names an adapter that is not there, or that cannot be used; the message says which and why."""


def adapter(name: str, *, here: bool = True) -> Plain:
    """The adapter of that name, or that class of a file, tried once; Plain for a file elsewhere. Raises NoAdapter."""
    if name in BUILT_IN:
        module, _, wanted = BUILT_IN[name].partition(":")
        return cast(Plain, getattr(import_module(f".{module}", __package__), wanted)())
    if ":" in name or name.endswith(".py"):
        path, _, wanted = name.rpartition(":")
        if not path or not wanted.isidentifier():
            raise NoAdapter(f"{name!r} does not say which class of which file: write --framework=FILE.py:CLASS")
        return _tried(name, lambda: _run(path, wanted), "", f"{Path(path).name}:{wanted}") if here else Plain()
    from importlib.metadata import entry_points  # here, because most jobs need none, and it takes a while to load

    points = entry_points(group=GROUP)
    found = sorted({_origin(point): point for point in points if point.name == name}.items())
    if not found:
        brought = sorted({point.name for point in points} - BUILT_IN.keys())
        raise NoAdapter(
            f"there is no adapter for {name!r}: {', '.join(BUILT_IN)} are built in, and installed packages bring "
            f"{', '.join(brought) or 'no other'}"
        )
    if len(found) > 1:
        raise NoAdapter(f"{' and '.join(origin for origin, _ in found)} both are an adapter for {name!r}: remove one")
    ((origin, point),) = found
    return _tried(origin, point.load, name)


def _tried(origin: str, load: Callable[[], Any], name: str, otherwise: str = "") -> Plain:  # Any: as for _problem
    """What the loaded class makes, named `otherwise` where it may have any name and has none of its own."""
    try:
        made = load()()
        if problem := _problem(made, name):
            raise NoAdapter(f"{origin} is no adapter that can be used: {problem}")
        if made.name in ("", *BUILT_IN):  # all nodes compare it
            made.name = otherwise
    except NoAdapter:
        raise
    except (Exception, SystemExit) as error:  # code that is not ours
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise NoAdapter(f"{origin} is no adapter that can be used: {what}: mend it, and import no framework") from error
    return cast(Plain, made)


def _run(path: str, name: str) -> Any:  # as above
    """What has that name in that file; nothing is left beside it."""
    if not Path(path).is_file():
        raise NoAdapter(f"there is no file {Path(path).absolute()}: each node needs its own copy at the path given")
    found = runpy.run_path(str(Path(path).absolute()))
    if not callable(found.get(name)):
        there = " or ".join(key for key, each in found.items() if isinstance(each, type) and Plain in each.__mro__[1:])
        raise NoAdapter(f"{path} has no class {name}: name {there or f'a new subclass of {Plain.__module__}.Plain'}")
    return found[name]


def _origin(point: "EntryPoint") -> str:
    """Whose it is, for a person."""
    by = f" of {point.dist.name} {point.dist.version}" if point.dist is not None else ""
    return f"{point.value}{by}"


_PEERS = tuple(Peer(rank, "127.0.0.1", tuple(range(29501, 29501 + MOST_WORKER_PORTS))) for rank in range(2))

_TRIALS = (
    (Round("job", 0, 0, 0, "", 0), Worker(0, 0, 1)),
    (
        Round("job", 1, 2, 1, "127.0.0.1", 29500, signals=("SIGTERM",), peers=_PEERS),
        Worker(1, 1, 2, role_rank=1, role_world_size=2, error_file="/nowhere"),
    ),
)


def _kind(declared: Any) -> type | UnionType:  # Any: an annotation of `Plain`
    """What a value of that annotation is an instance of."""
    if isinstance(declared, UnionType):
        return declared
    return int | float if declared is float else get_origin(declared) or declared


def _problem(made: Any, name: str) -> str:  # Any: whatever a package calls its adapter
    """What it lacks to be one, in words; empty where it is one. What its own code raises goes through."""
    for attribute, declared in get_type_hints(Plain).items():
        if not hasattr(made, attribute):
            return f"it has no {attribute}: let it inherit from {Plain.__module__}.Plain"
        kind = _kind(declared)
        if not isinstance(getattr(made, attribute), kind):
            return f"its {attribute} is no {kind.__name__ if isinstance(kind, type) else kind}"
    if name and made.name != name:
        return f"its name is {made.name!r}, and not {name!r}"
    if not 0 <= made.worker_ports <= MOST_WORKER_PORTS:
        return f"its worker_ports is not between 0 and {MOST_WORKER_PORTS}"
    if not all(isinstance(hint, Hint) for hint in made.hints):
        return "its hints are not all a Hint"
    for pattern in (*made.consequences, *(hint.pattern for hint in made.hints)):
        re.compile(pattern)
    if not isinstance(made.accelerators({}), Accelerators):
        return "its accelerators() returns no Accelerators"
    try:
        options: dict[object, object] = dict(made.role_options({"worker": 2}))
    except ValueError:  # it has no such roles
        options = {}
    if not all(isinstance(text, str) for pair in options.items() for text in pair):
        return "its role_options() returns something that is no text"
    for round, worker in _TRIALS:
        services: list[Any] = [*made.services(round)]
        if not all(isinstance(service, Service) for service in services):
            return "its services() are not all a Service"
        if len({service.name for service in services}) < len(services):
            return "two of its services() have one name"
        said = {service.name: "29500" for service in services} if round.number else {}
        try:
            variables: dict[object, object] = dict(made.environment(replace(round, services=said), worker, {}))
        except Exception as error:
            if round.number:
                raise
            return (
                f"its environment() raises {error!r} for a round of number 0, which has no peers and no services: "
                "return what depends on them only where round.number is not 0"
            )
        if not all(isinstance(key, str) and isinstance(value, str | None) for key, value in variables.items()):
            return "its environment() returns something that is no text"
    return ""
