"""A model file's functions, called with checks: what one returns that cannot be used is told in words."""

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from ...rendezvous.base.frozen import dataclass
from ..readers.contract import Columns
from .auc import AUC
from .errors import BadModel
from .featured import ModelFeatures, declare_features
from .model_source import FEATURES, NEEDED, OPTIONAL, check_names

Value = Any
"""What `feed` gives and a module takes or returns: a tensor, a tuple of values, or a mapping of names to values."""


TAKEN = ("loss", "records", "step")
"""Names that no metric has: an evaluation has them itself."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What `feed` made of some records.

    Attributes:
        inputs, labels: tensors, or tuples or mappings of them; labels None: the records have none.
        count: records.
    """

    inputs: Value
    labels: Value
    count: int


class UserModel:
    """The functions of one model file.

    Args:
        functions: by name.
        file: for messages.
        features: what it has in place of `feed`.

    Attributes:
        features: as given.
    """

    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]],  # Any: a user's
        file: str,
        features: ModelFeatures | None = None,
    ) -> None:
        check_names({*functions, *(FEATURES if features else ())}, file)
        self.features = features
        self._functions = functions
        self._file = file

    def make_module(self, seed: int) -> nn.Module:
        """What `forward()` returns. Raises BadModel."""
        torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]  # torch has no type for it
        forward = self._functions["forward"]
        module = self.features.call_forward(forward) if self.features else forward()
        if not isinstance(module, nn.Module):
            raise self._returned("forward", module, "a torch.nn.Module")
        if sparse := next((each for each in module.modules() if getattr(each, "sparse", False)), None):
            raise BadModel(
                f"{self._file}: {type(sparse).__name__}(sparse=True) has gradients that workers cannot add up: use "
                "elastic_run.torch.Embedding and --servers, or leave sparse=True out"
            )
        return module

    def make_optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        """What `optimizer(parameters)` returns. Raises BadModel."""
        made = self._functions["optimizer"](parameters)
        if not isinstance(made, torch.optim.Optimizer) or _needs_argument(made.step):
            raise self._returned("optimizer", made, "an optimizer of torch whose step() needs no closure")
        return made

    def make_schedule(self, optimizer: torch.optim.Optimizer) -> Any:  # Any: torch has no common class of schedulers
        """What `schedule(optimizer)` returns, which is stepped once in each step; None without one. Raises BadModel."""
        if "schedule" not in self._functions:
            return None
        made = self._functions["schedule"](optimizer)
        named = (callable(getattr(made, name, None)) for name in ("step", "state_dict", "load_state_dict"))
        if not all(named) or _needs_argument(made.step):
            raise self._returned("schedule", made, "a scheduler of torch.optim.lr_scheduler whose step() needs nothing")
        return made

    def make_callbacks(self) -> list[Callable[[Mapping[str, float]], object]]:
        """What `callbacks()` returns: functions of a report. Raises BadModel."""
        if "callbacks" not in self._functions:
            return []
        made: Any = self._functions["callbacks"]()
        if not isinstance(made, list) or not all(map(callable, cast("list[Any]", made))):
            raise self._returned("callbacks", cast(object, made), "a list of functions")
        return cast("list[Any]", made)

    def feed(self, columns: Columns, *, labelled: bool = True) -> Batch:
        """What `feed(columns)` makes of some records. Raises BadModel.

        Args:
            labelled: labels are needed.
        """
        count = count_records(columns)
        if self.features:
            given: object = self.features.feed(columns, labelled=labelled)
        else:
            given = self._functions["feed"](columns)
        pair = cast("tuple[Value, ...]", given) if isinstance(given, tuple) else ()
        if len(pair) != 2:
            raise self._returned("feed", cast(object, given), "two values, inputs and labels: return inputs, labels")
        inputs, labels = pair
        inputs, labels = self._to_tensors(inputs, "inputs"), self._to_tensors(labels, "labels")
        for each in tensors_of(labels):
            if each.ndim == 0 or len(each) != count:
                size = len(each) if each.ndim else "no"
                raise BadModel(
                    f"{self._file}: feed() got {count} records and returned {size} labels: each record has one"
                )
        if labelled and not any(True for _ in tensors_of(labels)):
            raise BadModel(f"{self._file}: feed() returned no labels: to train and to evaluate each record needs one")
        return Batch(inputs, labels, count)

    def compute_output(self, module: nn.Module, inputs: Value) -> Value:
        """The module's output: a tuple of inputs is spread, a mapping becomes keywords."""
        if isinstance(inputs, tuple):
            return module(*cast("tuple[Value, ...]", inputs))
        if isinstance(inputs, Mapping):
            return module(**cast("Mapping[str, Value]", inputs))
        return module(inputs)

    def compute_loss(self, output: Value, labels: Value) -> Tensor:
        """What `loss(output, labels)` returns, of no dimension. Raises BadModel."""
        loss = self._functions["loss"](output, labels)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise self._returned("loss", loss, "one number, the mean over the batch")
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise BadModel(f"{self._file}: loss() returned a number without a gradient: compute it from the output")
        return loss.reshape(())

    def compute_metrics(self, output: Value, labels: Value, count: int) -> dict[str, float | AUC]:
        """What `metrics(output, labels)` returns, each an AUC or the mean over `count` records. Raises BadModel."""
        if "metrics" not in self._functions:
            return {}
        given = self._functions["metrics"](output, labels)
        if not isinstance(given, Mapping):
            raise self._returned("metrics", given, "a mapping of names to numbers")
        found: dict[str, float | AUC] = {}
        for name, value in cast("Mapping[str, Any]", given).items():
            if name in TAKEN or not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's
                raise BadModel(f"{self._file}: metrics() returned something named {name!r}: give it another name")
            if isinstance(value, AUC):
                found[name] = value
                continue
            try:
                numbers = torch.as_tensor(value, dtype=torch.float64)
            except (TypeError, ValueError, RuntimeError):
                raise self._returned("metrics", value, f"numbers for {name!r}") from None
            if numbers.numel() not in (1, count):
                raise BadModel(
                    f"{self._file}: metrics() returned {tuple(numbers.shape)} numbers for {name!r}: return their mean, "
                    f"or one for each of the {count} records"
                )
            found[name] = float(numbers.mean())
        return found

    def _to_tensors(self, value: Value, what: str) -> Value:
        if isinstance(value, tuple):
            return tuple(self._to_tensors(each, what) for each in cast("tuple[Value, ...]", value))
        if isinstance(value, Mapping):
            pairs = cast("Mapping[str, Value]", value).items()
            return {name: self._to_tensors(each, what) for name, each in pairs}
        array = as_array(value)
        if array is not None and array.dtype.kind in "biuf":
            wanted = (
                array.dtype.newbyteorder("=") if array.dtype.itemsize < 8 or array.dtype.kind != "f" else np.float32
            )
            return torch.as_tensor(np.ascontiguousarray(array, wanted).reshape(array.shape))
        if isinstance(value, Tensor) or value is None:
            return value
        raise BadModel(
            f"{self._file}: feed() returned {describe(value)} among its {what}: return tensors or arrays of numbers, "
            "tuples or mappings of them"
        )

    def _returned(self, name: str, value: object, wanted: str) -> BadModel:
        return BadModel(f"{self._file}: {name}() returned {describe(value)}, and has to return {wanted}")


def describe(value: object) -> str:
    """A value in a few words."""
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)} of {value.dtype}"
    if isinstance(value, tuple | list):
        sized = cast("tuple[object, ...] | list[object]", value)
        return f"a {type(sized).__name__} of {len(sized)}"
    if (array := as_array(value)) is not None:
        return f"an array of {array.dtype}"
    return "None" if value is None else f"a {type(value).__name__}"


def as_array(value: object) -> np.ndarray[Any, np.dtype[Any]] | None:
    """The value, where it is numpy's."""
    return cast("np.ndarray[Any, np.dtype[Any]]", value) if isinstance(value, np.ndarray) else None


def _needs_argument(method: Callable[..., object]) -> bool:
    """Whether it cannot be called without one."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    given = inspect.signature(method).parameters.values()
    return any(each.kind in kinds and each.default is inspect.Parameter.empty for each in given)


def count_records(columns: Columns) -> int:
    """How many there are."""
    return len(next(iter(columns.values()), ()))


def tensors_of(value: Value) -> Iterator[Tensor]:
    """All tensors in tuples and mappings."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for each in cast("tuple[Value, ...]", value):
            yield from tensors_of(each)
    elif isinstance(value, Mapping):
        for each in cast("Mapping[str, Value]", value).values():
            yield from tensors_of(each)


def load_model(file: str) -> UserModel:
    """Runs the file, with its folder first where Python looks for modules. Raises BadModel, with its cause."""
    path = Path(file)
    sys.path.insert(0, str(path.absolute().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise BadModel(f"{file} is no Python file by its name: it must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a user's code raises anything
        raise BadModel(f"{file} cannot be loaded: {type(error).__name__}: {error}") from error
    return model_of(module, file)


def model_of(module: object, file: str) -> UserModel:
    """The functions of a module that is loaded. Raises BadModel."""
    names = (*NEEDED, *OPTIONAL)
    found = {name: getattr(module, name) for name in names if callable(getattr(module, name, None))}
    return UserModel(found, file, declare_features(module, file))
