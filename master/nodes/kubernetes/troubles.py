"""What to do where the cluster says that a pod cannot be made, placed or started (pure).

The cluster's own words are always told; here is the sentence that follows them.
"""

import re
from collections.abc import Mapping

ADVICE: Mapping[str, str] = {
    r"service ?account \S+ not found|error looking up service account": (
        "kubectl apply -f deploy/kubernetes/role.yaml makes the service account, with its rights"
    ),
    r"violates PodSecurity": "correct --pod-template: a pod without one conforms to every level",
    r"runAsNonRoot|non-root policy": (
        "give --pod-template with the number of a user who is not root, spec: {securityContext: {runAsUser: 1000}}, or "
        "let it be root: {runAsNonRoot: false}"
    ),
    r"must specify ": (
        "a quota wants it of every pod: give the agent's container limits in --pod-template, by which master and store "
        "get some of their own"
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


def with_pull(words: str, failed: str) -> str:
    """Where `words` say only that a pull is tried again: with why it `failed`, as the kubelet has said before."""
    return f"{words}: {failed}" if _BARE in words and failed and failed not in words else words
