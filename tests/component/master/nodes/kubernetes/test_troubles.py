"""What a user is told where the cluster says that a pod cannot be made, placed or started."""

from typing import Any

import pytest

from elastic_run.launcher.cluster.unstarted import Patience, Trouble, of_store
from elastic_run.master.nodes.kubernetes.troubles import Pulls, steady, with_advice, with_pull
from elastic_run.master.nodes.replica import CannotStart, Starting, Submitted, Unschedulable


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ('pods "a-" is forbidden: error looking up service account team/x: serviceaccount "x" not found', "role.yaml"),
        ('pods "a-" is forbidden: exceeded quota: few, requested: pods=1', "have the quota raised"),
        ("it cannot be started: ErrImagePull: rpc error: code = NotFound", "the image's name"),
        ("it cannot be started: InvalidImageName: couldn't parse image reference", "the image's name"),
        ('it cannot be started: CreateContainerConfigError: secret "s" not found', "make the Secret"),
        (
            "it cannot be started: CreateContainerConfigError: container has runAsNonRoot and image will run as root "
            '(pod: "a-master_team(7)", container: master)',
            "{runAsUser: 1000}",
        ),
        ("CreateContainerConfigError: container's runAsUser breaks non-root policy", "{runAsNonRoot: false}"),
        (
            'pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true',
            "correct --pod-template",
        ),
        ('pods "a" is forbidden: failed quota: q: must specify limits.cpu', "some of their own"),
        ("its agent ended with exit code 127", "on its PATH"),
        ("there is no place for it: 0/3 nodes are available: 3 Insufficient cpu.", "when there is room"),
        ('pods is forbidden: User "u" cannot create resource "pods" in API group ""', "role.yaml"),
        ("no PriorityClass with name high was found", "kubectl get priorityclasses"),
    ],
)
def test_the_clusters_words_stay_and_advice_follows(words: str, advice: str) -> None:
    found = with_advice(words)
    assert found.startswith(words.rstrip(".")) and advice in found.removeprefix(words)


def test_what_is_not_known_is_told_as_it_is() -> None:
    assert with_advice("its agent ended with exit code 3") == "its agent ended with exit code 3"


def test_why_a_pull_failed_is_told_while_it_is_only_said_that_it_is_tried_again() -> None:
    back_off = 'ImagePullBackOff: Back-off pulling image "x"'
    assert with_pull(back_off, "not found") == f"{back_off}: not found"
    assert with_pull(f"{back_off}: not found", "not found") == f"{back_off}: not found"
    assert with_pull(back_off, "") == back_off
    assert with_pull("ErrImagePull: denied", "not found") == "ErrImagePull: denied"


def test_a_pod_whose_image_cannot_be_pulled_is_told_with_the_cause_until_it_starts() -> None:
    pulls, back_off = Pulls(), CannotStart('ImagePullBackOff: Back-off pulling image "x"')
    pulls.with_cause("1", CannotStart("ErrImagePull: denied"))
    assert "denied" in str(pulls.with_cause("1", back_off)) and "denied" not in str(pulls.with_cause("2", back_off))
    assert pulls.with_cause("1", Starting()) == Starting() and pulls.with_cause("1", back_off) == back_off


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a: ErrImagePull: denied; check", 'a: ImagePullBackOff: Back-off pulling image "x": denied; check', True),
        ("a: it ends again and again (3 times): no", "a: it ends again and again (4 times): no", True),
        ("a: it ends again and again (3 times): no", "a: it ends again and again (3 times): yes", False),
        ("the store does not answer: a, b", "the store does not answer: a", False),
    ],
)
def test_what_is_said_by_turns_is_no_news(one: str, other: str, same: bool) -> None:
    assert (steady(one) == steady(other)) is same


PULL, ROOT = CannotStart("ErrImagePull: not found"), CannotStart("image will run as root", never=True)


@pytest.mark.parametrize(
    ("reasons", "kind", "words"),
    [
        ((None, None, None), None, ""),
        ((Submitted(), Starting(), None), None, ""),
        ((None, Unschedulable("no room"), None), "waits", "the pod 1 of its store: there is no place for it: no room"),
        ((None, None, PULL), "waits", "the pod 2 of its store: it cannot be started: ErrImagePull"),
        ((Unschedulable("no room"), PULL, PULL), "stuck", "the pod 1 of its store: it cannot be started: ErrImagePull"),
        ((PULL, None, ROOT), "stuck", "the pod 2 of its store: it cannot be started: image will run as root"),
        ((ROOT, ROOT, PULL), "failed", "the pod 0 of its store: it cannot be started: image will run as root"),
        ((None,), "waits", "2 of the 3 pods of its store are not made; kubectl describe statefulset"),
    ],
)
def test_a_store_is_given_up_where_its_quorum_cannot_start(reasons: Any, kind: str | None, words: str) -> None:
    found = of_store({str(index): each for index, each in enumerate(reasons)}, 3)
    assert (found.kind, found.words.startswith(words)) == (kind, True) if found else kind is None


def test_a_store_of_one_member_is_given_up_with_it() -> None:
    assert [found.kind for each in (PULL, ROOT) if (found := of_store({"0": each}, 1))] == ["stuck", "failed"]


def test_a_master_that_cannot_start_is_waited_for_for_a_while() -> None:
    patience, stuck = Patience(), Trouble("no such image", "stuck")
    assert patience.ended_by(stuck, 100.0) == patience.ended_by(stuck, 699.0) == ""
    assert patience.ended_by(None, 699.5) == "", "it is there"
    assert patience.ended_by(stuck, 700.0) == patience.ended_by(stuck, 1299.0) == ""
    assert patience.ended_by(stuck, 1300.0) == "no such image (for 600 s)"


def test_a_program_that_was_never_there_ends_the_job_at_once_and_a_lack_of_room_never() -> None:
    assert Patience().ended_by(Trouble("3 pods could not run", "failed"), 0.0) == "3 pods could not run"
    assert Patience().ended_by(Trouble("no room"), 0.0) == Patience().ended_by(Trouble("no room"), 1e6) == ""
