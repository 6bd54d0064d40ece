"""What PodSecurity admission says of a pod at the level `restricted` (pure), which the tests' Kubernetes 1.20 has not.

The rules are those of the Pod Security Standards, `baseline` and `restricted`, without the ones for Windows.
"""

from collections.abc import Mapping
from typing import Any

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
