"""What declared features need to know of the data, and what they are once they know it (pure)."""

import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any

from .declared import Category, Cross, Feature, Features, IdSequence, Numeric, Words
from .serving import WORDS, FittedFeatures, text_of
from .summary import KEPT, ColumnLook, NumberSummary, Summary


def looks_of(features: Features) -> tuple[ColumnLook, ...]:
    """What is to be known of the records; nothing, where the declaration says all."""
    return tuple(look for name, feature in features.declared.items() for look in _looks_of(name, feature))


def _looks_of(name: str, feature: Feature) -> Iterator[ColumnLook]:
    if isinstance(feature, Numeric):
        if not isinstance(feature.bins, tuple):
            yield ColumnLook(feature.column or name, "numbers")
    elif not isinstance(feature, Cross) and isinstance(feature.vocabulary, int) and feature.vocabulary:
        yield ColumnLook(feature.column or name, "texts", _split_of(feature), max(KEPT, 2 * feature.vocabulary))


def _split_of(feature: Category | IdSequence | Words) -> str | None:
    if isinstance(feature, Words):
        return WORDS
    return feature.separator if isinstance(feature, IdSequence) else None


def fit_features(features: Features, summary: Summary) -> FittedFeatures:
    """The features, by what is known of the records.

    Args:
        summary: with all of `looks_of(features)`.
    """
    return FittedFeatures([_fit(name, feature, summary) for name, feature in features.declared.items()])


def _fit(name: str, feature: Feature, summary: Summary) -> dict[str, Any]:
    if isinstance(feature, Cross):
        return {"name": name, "kind": "cross", "columns": list(feature.columns), **_hash_facts(name, feature)}
    found: dict[str, Any] = {"name": name, "column": feature.column or name}
    if isinstance(feature, Numeric):
        if not isinstance(feature.bins, int):
            return {**found, "kind": "bins", "edges": list(feature.bins), "rows": len(feature.bins) + 2}
        known = summary.numbers(found["column"])
        if feature.bins:
            edges = known.sketch.quantiles([each / feature.bins for each in range(1, feature.bins)])
            return {**found, "kind": "bins", "edges": sorted(set(edges)), "rows": feature.bins + 1}
        return {**found, "kind": "number", "indicator": feature.indicator, **_scale_facts(feature, known)}
    if feature.hash or feature.table:
        facts = _hash_facts(name, feature)
        kind = "hash" if feature.hash else "table"
    else:
        values = (
            summary.texts(found["column"], _split_of(feature)).frequent.most(feature.vocabulary, feature.min_count)
            if isinstance(feature.vocabulary, int)
            else list(map(text_of, feature.vocabulary))
        )
        facts, kind = {"values": values, "rows": len(values) + 2}, "vocabulary"
    if isinstance(feature, Category):
        return {**found, "kind": kind, **facts}
    return {**found, "kind": "sequence", "split": _split_of(feature), "length": feature.length, **facts}


def _hash_facts(name: str, feature: Any) -> dict[str, Any]:  # Any: one of those that have a hash
    return {"salt": name, "buckets": feature.hash, "rows": feature.hash + 1 if feature.hash else 0}


def _scale_facts(feature: Numeric, known: NumberSummary) -> dict[str, Any]:
    """How a number is standardized. Without any, all are 0."""
    low, high = (known.low, known.high) if known.plain.count else (0.0, 0.0)
    mean, deviation = 0.0, 1.0
    if feature.standardize and known.plain.count:
        moments = known.logs if feature.log else known.plain
        mean, deviation = moments.mean, moments.deviation
        if not (math.isfinite(mean) and math.isfinite(deviation)):  # numbers that are too large to be squared
            mean, deviation = low / 2 + high / 2, high / 2 - low / 2
        if deviation <= 1e-12 * abs(mean):  # one value, but for rounding
            deviation = 1.0
    return {"log": feature.log, "mean": mean, "deviation": deviation or 1.0, "low": low, "high": high}


def name_features(features: Features) -> str:
    """Another name for each declaration."""
    return hashlib.blake2b(json.dumps(features.to_tables()).encode(), digest_size=8).hexdigest()
