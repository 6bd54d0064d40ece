"""What scripts may import: the whole list, and what has to hold of each name."""

import builtins
import importlib
import re
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any


def lists(words: Mapping[str, str]) -> dict[str, list[str]]:
    """The words of each text."""
    return {name: text.split() for name, text in words.items()}


SURFACE = lists(
    {
        "elastic_run": """
        Context LaunchFailed Rounds __version__ compat context data exceptions features is_current_round jax launch
        models rounds servers tensorflow torch trace xgboost
    """,
        "elastic_run.compat": "elastic_launch",
        "elastic_run.data": """
        BadRow Columns KafkaTopic LineFiles Part RecordFiles RecordReader RecordShard RecordShards Shard Shards
        StreamRecord StreamShard StreamShards StreamSource open shards stream
    """,
        "elastic_run.exceptions": """
        AgentGone AgentTimeout BadCheckpoint BadDataset BadEnvironment BadFeatures BadFiles BadModel BadRecords
        BadSampler BadSamplerState BadShardsState BadSource ElasticRunError FileChanged LaunchFailed NoAgent NoLedger
        OffsetsGone
        ProcessGroupExists PushRefused RanksDiffer ReadersError RoundOver SamplerError SamplerMisused ServerFull
        ServerGone ServersError ShardsError ShardsMisused ShardsNotDone ShardsRefused SourceAway StateLost TableMisused
        UnsupportedState UsageError WorldSizeRefused
    """,
        "elastic_run.features": "Category Cross Features FittedFeatures IdSequence Numeric Words",
        "elastic_run.jax": "initialize",
        "elastic_run.models": "AUC main",
        "elastic_run.tensorflow": "Checkpoint Embedding Records ShardsDataset fit_shard shards_dataset",
        "elastic_run.servers": """
        Adagrad Adam FTRL LeastFrequent LeastRecent Momentum Normal OlderThan SGD Table Uniform Zeros export string_ids
    """,
        "elastic_run.torch": """
        Attempt Checkpoint ElasticBatchSampler ElasticIterableDataset ElasticLoader Embedding HostsUpdated Records
        State on_servers run
    """,
        "elastic_run.trace": "mark span",
        "elastic_run.xgboost": "communicator_args",
    }
)
"""Everything public, by module: what is added here is promised."""

MEMBERS = lists(
    {
        "elastic_run.Context": "job_id local_rank local_world_size node rank restart_count round world_size",
        "elastic_run.Rounds": """
        alone broken close done formed next over planned register_sockets report_state standby
    """,
        "elastic_run.compat.elastic_launch": "",
        "elastic_run.models.AUC": "compute_area from_values merge to_values",
        "elastic_run.data.KafkaTopic": "partitions read",
        "elastic_run.data.LineFiles": "partitions read",
        "elastic_run.data.Part": "",
        "elastic_run.data.BadRow": "position why",
        "elastic_run.data.Columns": "",
        "elastic_run.data.RecordFiles": "read shards skipped",
        "elastic_run.data.RecordReader": "columns place read size",
        "elastic_run.data.RecordShard": """
        done epoch file index indices key number offset progress read start stop
    """,
        "elastic_run.data.RecordShards": "close flush load_state_dict mark part state_dict",
        "elastic_run.data.Shard": "done epoch file index indices key number offset progress start stop",
        "elastic_run.data.Shards": "close flush load_state_dict mark part state_dict",
        "elastic_run.data.StreamRecord": "key offset timestamp value",
        "elastic_run.data.StreamShard": """
        done epoch file index indices key number offset partition progress records start stop
    """,
        "elastic_run.data.StreamShards": "close ended flush load_state_dict mark next_within part state_dict stop",
        "elastic_run.data.StreamSource": "partitions read",
        "elastic_run.features.Category": "column hash min_count table vocabulary",
        "elastic_run.features.Cross": "columns hash table",
        "elastic_run.features.Features": "to_tables",
        "elastic_run.features.FittedFeatures": "columns join rows_of",
        "elastic_run.features.IdSequence": "column hash length min_count separator table vocabulary",
        "elastic_run.features.Numeric": "bins column indicator log standardize",
        "elastic_run.features.Words": "column hash length min_count table vocabulary",
        "elastic_run.servers.Adagrad": "code eps initial_accumulator_value lr",
        "elastic_run.servers.Adam": "beta1 beta2 code eps lr",
        "elastic_run.servers.FTRL": "beta code l1 l2 lr",
        "elastic_run.servers.LeastFrequent": "bytes code rows",
        "elastic_run.servers.LeastRecent": "bytes code rows",
        "elastic_run.servers.Momentum": "code lr momentum",
        "elastic_run.servers.Normal": "code mean std",
        "elastic_run.servers.OlderThan": "bytes code rows seconds",
        "elastic_run.servers.SGD": "code lr",
        "elastic_run.servers.Table": "prefetch pull push rows",
        "elastic_run.servers.Uniform": "code high low",
        "elastic_run.servers.Zeros": "code",
        "elastic_run.tensorflow.Checkpoint": "callback commit restore save step",
        "elastic_run.tensorflow.Embedding": "call compute_output_shape get_config prefetch rows",
        "elastic_run.tensorflow.Records": "epoch file indices key number offset start stop",
        "elastic_run.tensorflow.ShardsDataset": """
        commit dataset distributed load_state_dict most_steps state_dict
    """,
        "elastic_run.torch.Attempt": "",
        "elastic_run.torch.Checkpoint": "commit restore save step",
        "elastic_run.torch.ElasticBatchSampler": """
        accumulate commit dropped epoch load_state_dict remaining repeated state_dict step weight weights
    """,
        "elastic_run.torch.ElasticIterableDataset": "commit load_state_dict loader state_dict",
        "elastic_run.torch.ElasticLoader": "commit load_state_dict state_dict",
        "elastic_run.torch.Embedding": "extra_repr forward prefetch rows",
        "elastic_run.torch.Records": "epoch file indices key number offset start stop",
        "elastic_run.torch.State": """
        attempts check_host_updates commit context ddp register_reset_callbacks restore step sync
    """,
    }
)
"""What each public class has, beside what it inherits from others' classes and what only its instances have."""

NAMES = [f"{module}.{name}" for module, names in SURFACE.items() for name in names]

DOCUMENTED = [path for path in NAMES if not path.endswith("__version__")]

NEEDS_A_FRAMEWORK = ("elastic_run.features", "elastic_run.jax", "elastic_run.tensorflow", "elastic_run.torch")
"""Modules that import their framework."""


def without_frameworks(paths: Iterable[str]) -> list[str]:
    """Those of the modules and names that can be loaded where no framework is installed."""
    return [path for path in paths if not path.startswith(NEEDS_A_FRAMEWORK)]


def with_frameworks(paths: Iterable[str]) -> list[str]:
    """Those that load a framework."""
    return [path for path in paths if path.startswith(NEEDS_A_FRAMEWORK)]


def loaded(path: str) -> Any:  # Any: whatever has that name
    """The module, or what a module has, of that name."""
    if path in SURFACE:
        return importlib.import_module(path)
    module, _, name = path.rpartition(".")
    return getattr(loaded(module), name)


def defined_here(kind: type, name: str) -> bool:
    """Whether a class of this package, and none of torch's or of Python's, has defined this member."""
    return any(name in vars(each) for each in kind.__mro__ if each.__module__.startswith("elastic_run"))


def documented(path: str) -> dict[str, str]:
    """The docstrings of a name and of its members."""
    found = loaded(path)
    members = [name for name in MEMBERS.get(path, []) if callable(getattr(found, name, None))]
    members += [name for name in MEMBERS.get(path, []) if isinstance(vars(found).get(name), property)]
    return {path: found.__doc__ or "", **{f"{path}.{name}": getattr(found, name).__doc__ or "" for name in members}}


def check_module(module: str) -> None:
    """`dir` lists the public names of a module and no others."""
    found: ModuleType = loaded(module)
    assert dir(found) == SURFACE[module] == sorted(found.__all__)
    assert found.__doc__


def check_class(path: str) -> None:
    """A class has the public members that are listed, and no others."""
    found = loaded(path)
    members = [name for name in dir(found) if not name.startswith("_") and defined_here(found, name)]
    assert members == MEMBERS[path]


def check_classes(names: Iterable[str], listed: Iterable[str]) -> None:
    """Each class among the names is in the list of members."""
    found = {path: loaded(path) for path in names}
    classes = {path for path, each in found.items() if isinstance(each, type) and not issubclass(each, BaseException)}
    assert classes == set(listed)


def check_docstrings(path: str) -> None:
    """A name and its members have docstrings, with the public paths of the errors that they name."""
    errors = "|".join([*SURFACE["elastic_run.exceptions"], "HostsUpdated"])
    for name, text in documented(path).items():
        assert text, name
        if path in SURFACE or path.startswith("elastic_run.exceptions"):
            continue
        bare = re.findall(rf"(?<![\w.`])(?:{errors})\b", text)
        assert not bare, f"{name} names {bare} without the path"
        for raised in re.findall(r"^ +((?:\w+\.)*\w+): ", text.partition("Raises:")[2], re.MULTILINE):
            kind = loaded(raised) if "." in raised else getattr(builtins, raised)
            assert issubclass(kind, BaseException), raised
