"""The area under the ROC curve, exact over all records, whoever has computed which of them."""

import base64
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .errors import BadModel

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


class AUC:
    """A metric: the share of pairs of a positive and a negative record in which the positive has the higher score.

        def metrics(output, labels):
            return {"auc": elastic_run.models.AUC(output, labels)}

    A tie counts half. What is kept are the distinct scores, and how many records of each kind have them, so parts are
    merged without an error: to merge them takes some 100 bytes of memory for each distinct score.

    Args:
        scores: a tensor or an array of numbers, of any order-preserving scale: logits, say, or probabilities.
        labels: of each record 0 or 1, or a truth value.

    Raises:
        elastic_run.exceptions.BadModel: they are not as many, a score is NaN, or a label is another.
    """

    def __init__(self, scores: Any, labels: Any) -> None:  # Any: torch's or numpy's
        import numpy as np  # here, and below: who imports `elastic_run.models` may not need it

        flat, kinds = _flatten(scores), _flatten(labels)
        if len(flat) != len(kinds):
            raise BadModel(f"metrics(): AUC(scores, labels) got {len(flat)} scores and {len(kinds)} labels")
        if np.isnan(flat).any():
            raise BadModel("metrics(): AUC(scores, labels) got scores that are NaN")
        if len(other := kinds[(kinds != 0) & (kinds != 1)]):
            raise BadModel(f"metrics(): AUC(scores, labels) got the label {other[0]:g}: a label is 0 or 1")
        self._scores, self._counts = _count_scores(flat, np.stack([kinds == 0, kinds == 1], axis=1))

    @staticmethod
    def merge(parts: Iterable["AUC"]) -> "AUC":
        """Of all their records together; `parts` has one at least."""
        import numpy as np

        given = list(parts)
        merged = AUC((), ())
        merged._scores, merged._counts = _count_scores(
            np.concatenate([each._scores for each in given]), np.concatenate([each._counts for each in given])
        )
        return merged

    def compute_area(self) -> float:
        """From 0 to 1; NaN where all records are of one kind."""
        negative, positive = self._counts[:, 0], self._counts[:, 1]
        pairs = int(negative.sum()) * int(positive.sum())
        twice_below = 2 * negative.cumsum() - negative  # of each score: twice the lower negatives, and once its own
        return int((positive * twice_below).sum()) / (2 * pairs) if pairs else float("nan")

    def to_values(self) -> dict[str, str]:
        """As plain values for JSON."""
        arrays = {"scores": self._scores.astype("<f8"), "counts": self._counts.astype("<i8")}
        return {name: base64.b64encode(array.tobytes()).decode() for name, array in arrays.items()}

    @staticmethod
    def from_values(values: Mapping[str, str]) -> "AUC":
        """What `to_values` gave."""
        import numpy as np

        found = AUC((), ())
        found._scores = np.frombuffer(base64.b64decode(values["scores"]), "<f8")
        found._counts = np.frombuffer(base64.b64decode(values["counts"]), "<i8").reshape(-1, 2)
        return found


def _flatten(values: Any) -> "Array":  # Any: as above
    import numpy as np

    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=np.float64).reshape(-1)


def _count_scores(scores: "Array", counts: "Array") -> "tuple[Array, Array]":
    """The distinct scores, ascending, and the sums of their counts, (n, 2) int64."""
    import numpy as np

    distinct, places = np.unique(scores, return_inverse=True)
    sums = np.zeros((len(distinct), 2), np.int64)
    np.add.at(sums, places, counts.astype(np.int64))
    return distinct, sums
