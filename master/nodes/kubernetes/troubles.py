"""What to do where the cluster says that a pod cannot be made, placed or started (pure).

The cluster's own words are always told; here is the sentence that follows them.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from ..replica import CannotStart, PendingReason

ADVICE: Mapping[str, str] = {
    r"service ?account \S+ not found|error looking up service account": (
        "kubectl apply -f deploy/kubernetes/role.yaml makes that of masters, with its rights; make another yourself"
    ),
    r"violates PodSecurity": "correct --pod-template: a pod without one conforms to every level",
    r"runAsNonRoot|non-root policy": (
        "give --pod-template with the number of a user who is not root, spec: {securityContext: {runAsUser: 1000}}, or "
        "let it be root: {runAsNonRoot: false}"
    ),
    r"must specify ": (
        "a quota wants it of every container: give those of --pod-template limits; where the agent's has some, master "
        "and store get some of their own"
    ),
    r"exceeded quota": (
        "ask for less or wait for others to end (kubectl describe resourcequota), or have the quota raised"
    ),
    r"cannot \w+ resource": "deploy/kubernetes/role.yaml has the rights that a job's master needs",
    r"no PriorityClass with name": "kubectl get priorityclasses lists those that there are",
    r"InvalidImageName|ErrImage|ImagePullBackOff|[Ff]ailed to pull|RegistryUnavailable": (
        "check the image's name and tag; a private registry needs imagePullSecrets, in the service account of the pod "
        "or in --pod-template"
    ),
    r"etcd is not installed": "put one into the image, or name an image that has one: --store-image",
    r"CreateContainerConfigError": "make the Secret or ConfigMap that the pod names, or correct its name",
    r"StartError|ContainerCannotRun|RunContainerError|CreateContainerError|exit code 12[67]": (
        "the image must have the program on its PATH: elastic-run[kubernetes], and for the store an etcd"
    ),
    r"Insufficient |didn't match|had (untolerated )?taint": (
        "it starts when there is room; kubectl describe nodes shows what there is"
    ),
}
"""By words of the cluster's: what its user can do. The first that is found counts."""

_BARE = "Back-off pulling image"


def with_advice(words: str) -> str:
    """`words`, and what can be done; `words` alone where nothing is known of that."""
    for pattern, advice in ADVICE.items():
        if re.search(pattern, words):
            return f"{words.rstrip('. ')}; {advice}"
    return words


def steady(words: str) -> str:
    """The part of `words` that stays while a kubelet says by turns that it has failed and that it tries again."""
    return re.sub(r"(ErrImagePull|ImagePullBackOff): .*|\([0-9]+ times\)", "", words)


class Pulls:
    """Why images could not be pulled, also while the kubelet only says that it tries again."""

    def __init__(self) -> None:
        self._failed: dict[str, str] = {}

    def with_cause(self, uid: str, pending: PendingReason | None) -> PendingReason | None:
        """`pending` of the pod with that uid, with why its image was not pulled."""
        if not isinstance(pending, CannotStart):
            self._failed.pop(uid, None)
            return pending
        kind, _, words = pending.message.partition(": ")
        if kind == "ErrImagePull":
            self._failed[uid] = words
        return replace(pending, message=with_pull(pending.message, self._failed.get(uid, "")))


def with_pull(words: str, failed: str) -> str:
    """Where `words` say only that a pull is tried again: with why it `failed`, as the kubelet has said before."""
    return f"{words}: {failed}" if _BARE in words and failed and failed not in words else words
