"""What PodSecurity admission says of a pod at the level `restricted` (pure), which Kubernetes before 1.23 has not.

A newer control plane is asked about the same CASES (tests/cluster/test_jobs.py).

The rules are those of the Pod Security Standards, `baseline` and `restricted`, without the ones for Windows.
"""

from collections.abc import Mapping
from typing import Any

from elastic_run.master.nodes.kubernetes import objects

Json = Mapping[str, Any]
"""An object of the API (hence Any)."""

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}

SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    *(f"net.ipv4.tcp_{each}" for each in ("fin_timeout", "keepalive_intvl", "keepalive_probes", "keepalive_time")),
    *(f"net.ipv4.tcp_{each}" for each in ("syncookies", "rmem", "wmem")),
}

SELINUX = {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}

PROFILES = {"RuntimeDefault", "Localhost"}

CASES: list[tuple[Json, Json, set[str]]] = [
    ({}, {}, set()),
    ({"runAsNonRoot": None}, {}, {"runAsNonRoot"}),
    ({"runAsNonRoot": None}, {"runAsNonRoot": True}, set()),
    ({}, {"runAsNonRoot": False, "runAsUser": 0}, {"runAsNonRoot", "runAsUser"}),
    ({"seccompProfile": None}, {}, {"seccompProfile"}),
    (
        {"seccompProfile": {"type": "Unconfined"}},
        {"seccompProfile": {"type": "Localhost", "localhostProfile": "own.json"}},
        {"seccompProfile"},
    ),
    ({"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}, {}, {"sysctls"}),
    ({}, {"procMount": "Unmasked"}, {"procMount"}),
    (
        {"seLinuxOptions": {"type": "spc_t"}},
        {"allowPrivilegeEscalation": None},
        {"seLinuxOptions", "allowPrivilegeEscalation"},
    ),
    (
        {"appArmorProfile": {"type": "Unconfined"}},
        {"privileged": True, "allowPrivilegeEscalation": None},
        {"appArmorProfile", "privileged", "allowPrivilegeEscalation"},
    ),
    ({}, {"capabilities": {"add": ["SYS_PTRACE"]}}, {"capabilities.add", "capabilities.drop"}),
]
"""What a pod's security context has beyond a restricted one's, what its container's has, and what is refused."""


def pod_with(pod: Json, container: Json) -> Json:
    """The restricted pod whose security contexts have this, too."""
    spec = objects.restricted({"containers": [{"name": "a", "image": "any"}]})
    spec["securityContext"].update(pod)
    spec["containers"][0]["securityContext"].update(container)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}


def violations(pod: Json) -> set[str]:
    """The fields by which that pod, or that pod's template, is refused; none where it conforms."""
    spec = pod["spec"]
    own = spec.get("securityContext") or {}
    found = {field for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)}
    for volume in spec.get("volumes") or ():
        found |= {f"volumes.{kind}" for kind in volume.keys() - {"name"} - VOLUMES}
    if {each["name"] for each in own.get("sysctls") or ()} - SYSCTLS:
        found.add("sysctls")
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    for key, value in annotations.items():
        if key.startswith("container.apparmor.security.beta.kubernetes.io/") and value == "unconfined":
            found.add("appArmorProfile")
    if own.get("runAsUser") == 0:
        found.add("runAsUser")
    found |= _of_both(own)
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            found |= _of_container(container, own)
    return found


def _of_container(container: Json, pod: Json) -> set[str]:
    own = container.get("securityContext") or {}
    capabilities = own.get("capabilities") or {}
    rules = {
        "privileged": not own.get("privileged"),
        "procMount": own.get("procMount", "Default") == "Default",
        "hostPort": not any(each.get("hostPort") for each in container.get("ports") or ()),
        "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
        "capabilities.drop": "ALL" in (capabilities.get("drop") or ()),
        "capabilities.add": set(capabilities.get("add") or ()) <= {"NET_BIND_SERVICE"},
        "runAsUser": own.get("runAsUser") != 0,
        "runAsNonRoot": own.get("runAsNonRoot", pod.get("runAsNonRoot")) is True,
        "seccompProfile": (own.get("seccompProfile") or pod.get("seccompProfile") or {}).get("type") in PROFILES,
    }
    return {field for field, holds in rules.items() if not holds} | _of_both(own)


def _of_both(own: Json) -> set[str]:
    selinux = own.get("seLinuxOptions") or {}
    rules = {
        "seccompProfile": (own.get("seccompProfile") or {}).get("type", "RuntimeDefault") in PROFILES,
        "appArmorProfile": (own.get("appArmorProfile") or {}).get("type", "RuntimeDefault") in PROFILES,
        "seLinuxOptions": selinux.get("type", "") in SELINUX and not selinux.get("user") and not selinux.get("role"),
        "windowsOptions": not (own.get("windowsOptions") or {}).get("hostProcess"),
    }
    return {field for field, holds in rules.items() if not holds}
