"""Changes what passes a public interface of the product, or of the simulated machine below it.

A seam is a public function, method or property, by its qualified name in the product (`rendezvous.round.decide`), or in
this package (`simulation.services.SimulatedServices.tell`). What is planted there is called instead, with the real one
before the arguments. Nothing inside the product is touched, so a defect that is planted here survives whatever the
product becomes inside.
"""

import contextlib
import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from elastic_run.rendezvous.store.contract import Compare, Delete, Put

from .planted import Outdated, rebind_name

Change = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Seam:
    """What is called instead of something public, with the real one before its arguments."""

    name: str
    instead: Callable[..., Any]

    def plant(self) -> None:
        """Changes the product in this process. Raises Outdated."""
        owner, name, real = self.find_target()
        if isinstance(real, property):
            setattr(owner, name, property(functools.partial(self.instead, real.fget)))
            return

        @functools.wraps(real)
        def planted(*args: Any, **keywords: Any) -> Any:
            return self.instead(real, *args, **keywords)

        if isinstance(owner, ModuleType):
            rebind_name(real, planted, name)
        else:
            setattr(owner, name, planted)

    def find_target(self) -> tuple[Any, str, Any]:
        """The module or class, the name there, and what it has of that name. Raises Outdated."""
        words = self.name.split(".")
        owner: Any = importlib.import_module("tests" if words[0] == "simulation" else "elastic_run")
        for number, word in enumerate(words):
            if inspect.getattr_static(owner, word, None) is None and isinstance(owner, ModuleType):
                with contextlib.suppress(ModuleNotFoundError):
                    importlib.import_module(f"{owner.__name__}.{word}")
            found = inspect.getattr_static(owner, word, None)
            if number + 1 == len(words) and (inspect.isfunction(found) or isinstance(found, property)):
                return owner, word, found
            if not (inspect.isclass(found) or inspect.ismodule(found)):
                break
            owner = found
        raise Outdated(f"{self.name} is no public function, method or property")


def replace_fields(**fields: Any) -> Change:
    """Replaces fields of a value: by another value, or by what a function makes of it. None stays None."""

    def changed(value: Any, *_: Any) -> Any:
        if value is None:
            return None
        new = {name: to(getattr(value, name)) if callable(to) else to for name, to in fields.items()}
        return dataclasses.replace(value, **new)

    return changed


def alter_each(changed: Change) -> Change:
    """Changes each of several values; what becomes None is left out."""
    return lambda values: tuple(new for new in map(changed, values) if new is not None)


def alter_arguments(call: str, **arguments: Change) -> Seam:
    """Arguments of a call are others.

    `call` names those that come before them in their order, such as `master.machine.incident.fatal(tally, incident)`,
    for what the product calls them is its own; an argument that is only passed by keyword is not named there.
    """
    name, _, order = call.removesuffix(")").partition("(")
    positions = {argument: position for position, argument in enumerate(order.split(", ")) if argument}

    def instead(real: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        bound = inspect.signature(real).bind(*args, **keywords)
        bound.apply_defaults()
        theirs = list(bound.arguments)
        for argument, to in arguments.items():
            its = theirs[positions[argument]] if argument in positions else argument
            bound.arguments[its] = to(bound.arguments[its])
        return real(*bound.args, **bound.kwargs)

    return Seam(name, instead)


def alter_answer(name: str, changed: Change) -> Seam:
    """The answer of a call is another. What may be named after its name is not used (`alter_arguments`)."""
    return Seam(name.partition("(")[0], lambda real, *args, **keywords: changed(real(*args, **keywords)))


def lose_call(name: str, when: Callable[..., bool] = lambda *args, **keywords: True) -> Seam:
    """A call that answers nothing is lost on its way."""

    async def nothing() -> None:
        return None

    def instead(real: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        if not when(*args, **keywords):
            return real(*args, **keywords)
        return nothing() if inspect.iscoroutinefunction(real) else None

    return Seam(name, instead)


def alter_event(kind: type, changed: Change) -> Seam:
    """What the controller is told is another event, or None. `changed`: of the event, the controller and the time."""

    def instead(real: Callable[..., Any], controller: Any, told: Any, now: float) -> Any:
        new = changed(told, controller, now) if isinstance(told, kind) else told
        return () if new is None else real(controller, new, now)

    return Seam("master.machine.controller.Controller.on", instead)


def alter_effect(kind: type, changed: Change) -> Seam:
    """What the controller wants done is another effect, or none. `changed`: of the effect and the controller."""

    def instead(real: Callable[..., Any], controller: Any, told: Any, now: float) -> Any:
        wanted = real(controller, told, now)
        return alter_each(lambda one: changed(one, controller) if isinstance(one, kind) else one)(wanted)

    return Seam("master.machine.controller.Controller.on", instead)


def folders_of(items: Iterable[Compare | Put | Delete]) -> set[str]:
    """What of a job these keys belong to, such as `nodes`."""
    return {item.key.split("/")[3] for item in items}


DATA = {"ledgers", "queues", "slots"}
"""What holds leases of data, and goes with them."""


def lose_compare(of: str | set[str], when: Callable[..., bool] = lambda compares, operations: True) -> Seam:
    """Compares of keys in these folders always hold. `when`: of the transaction's compares and operations."""

    def instead(real: Callable[..., Any], store: Any, compares: Any, operations: Any, **keywords: Any) -> Any:
        if when(compares, operations):
            always = [Compare(f"{one.key}/never", 0) for one in compares]
            compares = [
                new if folders_of([one]) <= _names(of) else one for one, new in zip(compares, always, strict=True)
            ]
        return real(store, compares, operations, **keywords)

    return Seam("rendezvous.store.etcd.etcd_store.EtcdStore.txn", instead)


def lose_operation(kind: type, of: str | set[str], when: Callable[..., bool] = lambda operations: True) -> Seam:
    """Operations of this kind on keys in these folders are lost. `when`: of the transaction's operations."""

    def instead(real: Callable[..., Any], store: Any, compares: Any, operations: Any, **keywords: Any) -> Any:
        if when(operations):
            operations = [one for one in operations if not (isinstance(one, kind) and folders_of([one]) <= _names(of))]
        return real(store, compares, operations, **keywords)

    return Seam("rendezvous.store.etcd.etcd_store.EtcdStore.txn", instead)


def _names(of: str | set[str]) -> set[str]:
    return {of} if isinstance(of, str) else of
