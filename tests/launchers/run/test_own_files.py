"""A user's own model is asked about here, and its copies are whole on every host, or not there."""

from __future__ import annotations

import base64
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchers.fork_servers.client import ForkServerClient
from launchers.fork_servers.host_servers import bring_copies
from launchers.run import launcher as run_launcher
from launchers.run.launcher import HostsLauncher
from ps_allreduce import model_files
from ps_allreduce.errors import HostFault, LaunchError, TookTooLong
from ps_allreduce.fork_server.messages import CopiesSeen, PutFile, SeekCopies
from ps_allreduce.fork_server.run_folder import ArrivingCopies
from ps_allreduce.model_files import copy_files, is_whole, models_in, names_in
from ps_allreduce.point.inputs.data import OwnDataset
from ps_allreduce.point.models.trained import OwnModel
from ps_allreduce.point.workload import Workload
from tests.cluster import Cluster, LocalLauncher
from tests.fakes import OWN
from tests.pretend import fake_server
from tests.talk import PATIENCE_S, serving

T = TypeVar("T")

FILES = {"mine.py": b"import helper", "helper/__init__.py": b"", "helper/a.py": bytes(range(200))}


class Host(ForkServerClient):
    """A host with files of its own, which answers at once."""

    def __init__(self, data_dir: Path) -> None:
        self.host, self.data_dir, self.copies = "n9", data_dir, ArrivingCopies()
        self.heard: list[object] = []

    def answer(self, request: object, kind: type[T]) -> T:
        assert isinstance(request, SeekCopies | PutFile)
        self.heard.append(request)
        answer = self.copies.serve(replace(request, data_dir=str(self.data_dir)))
        assert isinstance(answer, kind)
        return answer

    @property
    def num_pieces(self) -> int:
        return sum(isinstance(request, PutFile) for request in self.heard)


def copied(tmp_path: Path, files: dict[str, bytes] = FILES) -> OwnModel:
    """A model whose copies are here."""
    for name, content in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_bytes(content)
    return replace(OWN, digest=copy_files(tmp_path / "root", list(files), tmp_path / "here"))


@pytest.fixture
def model(tmp_path: Path) -> OwnModel:
    return copied(tmp_path)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "there")


@given(
    st.dictionaries(st.sampled_from(["a.py", "b/c.py", "b/d.py"]), st.binary(max_size=9)),
    st.integers(1, 10),
)
def test_whatever_is_sent_in_whatever_pieces_arrives(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], piece_bytes: int
) -> None:
    tmp_path = tmp_path_factory.mktemp("sent")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_files, "PIECE_BYTES", piece_bytes)
        model, host = copied(tmp_path, files), Host(tmp_path / "there")
        bring_copies(host, model, tmp_path / "here")
    folder = model.folder(tmp_path / "there")
    assert is_whole(folder, model.digest)
    assert {name: (folder / name).read_bytes() for name in names_in(folder)} == files
    assert os.listdir(folder.parent) == [model.digest]


def test_a_host_that_has_the_copies_is_sent_nothing(
    host: Host, model: OwnModel, tmp_path: Path
) -> None:
    bring_copies(host, model, tmp_path / "here")
    sent = host.num_pieces
    assert sent > len(FILES)
    bring_copies(host, model, tmp_path / "here")
    assert host.num_pieces == sent
    (model.folder(host.data_dir) / "mine.py").write_text("damaged")
    bring_copies(host, model, tmp_path / "here")
    assert host.num_pieces == 2 * sent
    assert is_whole(model.folder(host.data_dir), model.digest)


def pieces(model: OwnModel, tmp_path: Path) -> list[PutFile]:
    sent = Host(tmp_path / "sent")
    bring_copies(sent, model, tmp_path / "here")
    return [
        replace(request, data_dir=str(tmp_path / "there"))
        for request in sent.heard
        if isinstance(request, PutFile)
    ]


@pytest.mark.parametrize("left_out", range(7))
def test_the_folder_appears_with_the_last_piece_and_if_none_is_missing(
    host: Host, model: OwnModel, tmp_path: Path, left_out: int
) -> None:
    all_pieces = pieces(model, tmp_path)
    kept = [each for index, each in enumerate(all_pieces) if index != left_out]
    whole = [host.copies.serve(each).whole for each in kept]
    carries_nothing = not all_pieces[left_out].content and all_pieces[left_out].offset
    assert whole[:-1] == [False] * (len(kept) - 1)
    assert whole[-1] == bool(carries_nothing and not all_pieces[left_out].last)
    host.copies.give_up()
    assert os.listdir(models_in(host.data_dir)) == [model.digest] * whole[-1]


@pytest.mark.parametrize("path", ["../x.py", "/tmp/x.py", "a/../../x.py", "", ".", "a\0b"])
def test_a_path_that_leads_elsewhere_is_refused(
    host: Host, model: OwnModel, tmp_path: Path, path: str
) -> None:
    first, second, *_ = pieces(model, tmp_path)
    assert host.copies.serve(first) == CopiesSeen()
    before = sorted(tmp_path.rglob("*"))
    answer = host.copies.serve(replace(second, path=path))
    assert "is no file below the folder of a model" in answer.problem
    # What had arrived is given up, and nothing was written elsewhere.
    assert set(tmp_path.rglob("*")) <= set(before)
    assert os.listdir(models_in(host.data_dir)) == []


@pytest.mark.parametrize("digest", ["..", "", "0123", "0123456789ABCDEF", "../../../etc/pass"])
@pytest.mark.parametrize("data_dir", ["data", "/nowhere"])
def test_what_is_no_digest_names_no_folder(digest: str, data_dir: str) -> None:
    copies = ArrivingCopies()
    put = PutFile(data_dir=data_dir, digest=digest, path="a", offset=0, content="", last=False)
    for request in (put, SeekCopies(data_dir=data_dir, digest=digest)):
        assert "is no folder of a model" in copies.serve(request).problem


def test_a_relative_data_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put = PutFile(data_dir="x", digest=OWN.digest, path="a", offset=0, content="", last=False)
    assert "is no folder of a model" in ArrivingCopies().serve(put).problem
    assert os.listdir(tmp_path) == []


def test_what_is_no_base64_or_comes_out_of_order_is_refused(
    host: Host, model: OwnModel, tmp_path: Path
) -> None:
    first = next(piece for piece in pieces(model, tmp_path) if piece.content)
    assert host.copies.serve(replace(first, content="?!")).problem
    again = base64.b64encode(b"again").decode()
    assert host.copies.serve(first) == CopiesSeen()
    assert "a piece of" in host.copies.serve(replace(first, content=again)).problem


def test_another_model_begins_anew_and_removes_what_came_of_the_first(
    host: Host, model: OwnModel, tmp_path: Path
) -> None:
    host.copies.serve(pieces(model, tmp_path)[0])
    (tmp_path / "root" / "mine.py").write_text("another")
    other = copied(tmp_path, {"mine.py": b"another"})
    bring_copies(host, other, tmp_path / "here")
    assert os.listdir(models_in(host.data_dir)) == [other.digest]


def test_a_host_that_cannot_write_is_named(host: Host, model: OwnModel, tmp_path: Path) -> None:
    host.data_dir.write_text("no folder")
    with pytest.raises(HostFault, match=r"files of mine\.py:build cannot be written on n9: "):
        bring_copies(host, model, tmp_path / "here")


def test_copies_that_are_gone_or_damaged_here_are_not_sent(
    host: Host, model: OwnModel, tmp_path: Path
) -> None:
    (model.folder(tmp_path / "here") / "mine.py").write_text("damaged")
    with pytest.raises(HostFault, match="what arrived is not what the digest"):
        bring_copies(host, model, tmp_path / "here")
    assert os.listdir(models_in(host.data_dir)) == []
    (model.folder(tmp_path / "here") / "mine.py").unlink()
    with pytest.raises(LaunchError, match="the same command makes them anew"):
        bring_copies(host, model, tmp_path / "here")


def test_a_fork_server_takes_them_and_leaves_no_part_when_the_line_is_cut(
    model: OwnModel, tmp_path: Path
) -> None:
    models, sent = models_in(tmp_path / "there"), pieces(model, tmp_path)
    with serving(tmp_path) as client:
        client.wait_ready()
        for piece in sent[:-1]:
            assert client.answer(piece, CopiesSeen) == CopiesSeen()
        assert [path.name for path in models.iterdir()] != [model.digest]
        client.close()
        wait_until_gone(models)
    with serving(tmp_path) as client:
        client.wait_ready()
        answers = [client.answer(piece, CopiesSeen) for piece in sent]
        seek = SeekCopies(data_dir=sent[0].data_dir, digest=model.digest)
        assert answers[-1] == client.answer(seek, CopiesSeen) == CopiesSeen(whole=True)
    assert os.listdir(models) == [model.digest]


def wait_until_gone(folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while os.listdir(folder):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(("shares_files", "count"), [(True, 0), (False, 3)])
def test_hosts_with_files_of_their_own_are_sent_the_copies_first(
    cluster: Cluster, model: OwnModel, tmp_path: Path, shares_files: bool, count: int
) -> None:
    cluster.shares_files = shares_files
    launcher = HostsLauncher(cluster, tmp_path / "here")
    heard: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_launcher, "bring_copies", lambda client, *_: heard.append(client.host))
        launcher.prepare(Workload(model=model, data=OwnDataset()))
    assert heard == list(cluster.hosts)[:count]
    (spec,) = launcher.describe(Workload(model=model))
    assert spec.shape == (len(FILES),)


def test_a_model_is_asked_about_on_the_first_host(
    cluster: Cluster, model: OwnModel, tmp_path: Path
) -> None:
    launcher = HostsLauncher(cluster, tmp_path)
    found = launcher.find_model(Path("/root"), "mine", "build", ["a=1"], 10.0)
    assert found.files == ("/root/mine", "build", "a=1")
    tried = launcher.try_model(Workload(model=model), 10.0)
    assert tried.notes == (str(tmp_path), model.name)
    assert cluster.asked == [{"n10": 1}, {"n10": 1}]


def test_a_model_that_never_returns_is_given_up(tmp_path: Path) -> None:
    words = fake_server("--job", "FindModel", "hang", "--job", "TryModel", "die")
    with LocalLauncher(tmp_path, fork_server=words) as launcher:
        with pytest.raises(TookTooLong, match="FindModel took longer than 0 s"):
            launcher.find_model(tmp_path, "mine", "build", (), 0.3)
        with pytest.raises(HostFault):
            launcher.try_model(Workload(), 10.0)
