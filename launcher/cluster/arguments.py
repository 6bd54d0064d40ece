# What the API says is plain JSON.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""The command line of `elastic-job`, and the cluster that it names."""

import argparse
from typing import TYPE_CHECKING, Any, NoReturn

from .. import console
from ..errors import UsageError

if TYPE_CHECKING:
    from ...master.nodes.kubernetes.api import Api


class Parser(argparse.ArgumentParser):
    """Says what was wrong in one line, as `elastic-run` does."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message} (see {self.prog} --help)")


def say(line: str) -> None:
    console.say(line, command="elastic-job")


def api_of(arguments: argparse.Namespace) -> "Api":
    """The API server of that cluster. Raises PlatformError, and ModuleNotFoundError without the package kubernetes."""
    from ...master.nodes.kubernetes.api import Api

    return Api.load(arguments.namespace, arguments.kubeconfig, arguments.context)


def parser() -> argparse.ArgumentParser:
    cluster = Parser(add_help=False)
    cluster.add_argument("-n", "--namespace", default="", help="default: the namespace of the current context")
    cluster.add_argument("--kubeconfig", help="default: the one that kubectl uses")
    cluster.add_argument("--context", help="context of the kubeconfig; default: the current one")
    parser = Parser("elastic-job", description="Elastic training jobs on a Kubernetes cluster.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=Parser)

    def add(verb: str, does: str, *aliases: str) -> Any:
        made = verbs.add_parser(
            verb, help=does, description=does, parents=[cluster], aliases=aliases, allow_abbrev=False
        )
        made.set_defaults(verb=verb)
        return made

    def name(made: Any) -> None:
        made.add_argument("name", metavar="NAME", help="name of the job")

    made = add("submit", "start a job and follow it; accepts every flag of elastic-run; write -- before the script")
    made.usage = (
        "elastic-job submit --image=IMAGE [--name=NAME] [flags of elastic-run] -- train.py [its arguments]\n"
        "       elastic-job submit --image=IMAGE [--name=NAME] [flags of elastic-run] -- train model.py --data=FILES"
    )
    made.add_argument("--name", default="", help="name of the job; default: from the script's name")
    made.add_argument("--image", required=True, help="image with elastic-run, the script, and all that it imports")
    made.add_argument("--cpu", default="", help="CPUs of each node, such as 4 or 500m")
    made.add_argument("--memory", default="", help="memory of each node, such as 8Gi; also its limit")
    made.add_argument("--memory-cap", default="", help="a node that ran out of memory gets more, up to this")
    made.add_argument("--gpus", type=int, default=0, help="NVIDIA GPUs of each node")
    made.add_argument("--priority-class", default="", help="PriorityClass of the nodes")
    made.add_argument("--high-priority-class", default="", help="PriorityClass of the nodes that give way last")
    made.add_argument(
        "--high-priority-fraction",
        type=float,
        default=None,
        metavar="F",
        help="their share of each role's maximum, above 0 to 1",
    )
    made.add_argument("--queue", default="", help="LocalQueue of Kueue that admits the nodes; see docs/kubernetes.md")
    made.add_argument("--master-queue", default="", help="LocalQueue of Kueue that admits the master; default: none")
    made.add_argument(
        "--master-priority-class", default="", help="PriorityClass of the master; default: the highest of its nodes"
    )
    made.add_argument(
        "--store-replicas",
        type=int,
        choices=(0, 1, 3),
        default=None,
        help="members of the job's own etcd, without --rdzv-endpoint; 0: it runs in the master's pod, and the job "
        "starts again when that pod is lost (default: 3)",
    )
    made.add_argument(
        "--store-image", default="", help="image of those members, with elastic-run and etcd; default: --image"
    )
    made.add_argument("--service-account", default="", help="ServiceAccount of the master; default: elastic-run")
    made.add_argument("--image-pull-policy", default="", help="Always, IfNotPresent or Never")
    made.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="a variable for the script")
    made.add_argument("--pod-template", metavar="FILE", help="a pod (YAML) for the nodes, and in part for all pods")
    made.add_argument(
        "--ttl", type=int, default=None, metavar="SECONDS", help="the job goes so long (from 60) after its end"
    )
    made.add_argument("--no-wait", action="store_true", help="return at once")
    made.add_argument(
        "--dry-run",
        nargs="?",
        const="client",
        choices=("client",),
        help="print the objects for kubectl apply -f -, and make nothing",
    )
    made.add_argument("-o", "--output", choices=("yaml",), default="yaml", help="format of --dry-run")

    made = add("list", "list the jobs of the namespace")
    made.add_argument("-o", "--output", choices=("table", "json"), default="table")
    made = add("status", "show the state of a job")
    name(made)
    made.add_argument("-o", "--output", choices=("text", "json"), default="text")
    made.add_argument(
        "-w", "--watch", action="store_true", help="print it again after each change, until the job is over"
    )
    made = add("logs", "print the output of a job's nodes")
    name(made)
    made.add_argument("-f", "--follow", action="store_true", help="follow until the job is over")
    made.add_argument("--tail", type=int, default=-1, metavar="N", help="only the last N lines of each pod")
    made.add_argument("--master", action="store_true", help="also the output of the master's pod")
    made = add("wait", "wait until a job is over; exit with its exit code")
    name(made)
    made.add_argument("--timeout", type=float, default=0.0, metavar="SECONDS", help="default: no limit")
    made = add("scale", "set the maximum of a job's nodes, within its range")
    name(made)
    made.add_argument("count", metavar="N|ROLE=N", nargs="+")
    name(add("suspend", "end a job's nodes in order, and keep its progress"))
    name(add("resume", "continue a suspended job"))
    name(add("cancel", "end a job as failed; its logs stay", "stop"))
    name(add("delete", "delete a job with all that belongs to it"))
    return parser
