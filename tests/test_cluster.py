"""A cluster of two machines on this one: the same results, whichever machine dies."""

import os
import shutil
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

import layerscout as ls
from layerscout.cluster import Cluster, run_on_cluster
from layerscout.errors import InputError, LayerscoutError
from layerscout.scanning import scan
from layerscout.studies import Ray, Store, study
from sharded import shards
from studying import recipe, records, run

ray = pytest.importorskip("ray", reason="needs Ray")


@pytest.fixture(scope="module")
def machines():
    """Start a cluster of a machine with one core, to which others can be added; give it."""
    from ray.cluster_utils import Cluster as LocalCluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    head = {"num_cpus": 1, "include_dashboard": False}
    found = LocalCluster(initialize_head=True, head_node_args=head)
    ray.init(found.address, logging_level="ERROR", log_to_driver=False)
    yield found
    ray.shutdown()
    found.shutdown()


@pytest.mark.whole
def test_a_cluster_that_does_not_answer_is_told_in_a_line(tiny, reviews, tmp_path, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(InputError, match=f"no Ray cluster answers at {address}"):
        study(recipe(tiny, reviews), tmp_path, backend=Ray(Cluster(address)), progress=False)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(InputError, match=f"no Ray cluster answers at {address}"), Cluster().join():
        pass
    for given in ("there", "there:six", ":1"):
        words = f"no Ray cluster answers at {given} .* HOST:PORT"
        with pytest.raises(InputError, match=words), Cluster(given).join():
            pass
    assert Store(tmp_path).folder.exists()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"device": "cuda:1"}, "`device` must be auto, cpu or cuda, got cuda:1"),
        ({"device": "cpu", "gpus": 1}, "work on the cpu takes no GPUs, got 1"),
        (
            {"gpus": -1},
            "`gpus` must be 0, a share of at least 0.000100 or a whole number, got -1",
        ),
        ({"gpus": 1e-5}, "a share of at least 0.000100 .* got 1e-05"),
        ({"gpus": 1.5}, "or a whole number, got 1.5"),
        ({"cpus": 0}, "`cpus` must be 1 or more, got 0"),
    ],
)
def test_resources_that_make_no_sense_are_refused(given, told):
    with pytest.raises(InputError, match=told):
        Cluster(**given)


@pytest.mark.whole
def test_a_machine_that_dies_leaves_the_records_of_the_local_back_end(
    tiny, reviews, tmp_path, machines
):
    wanted = recipe(tiny, reviews, axes={"plan": ["top:1", "full"], "seed": [0, 1, 2]})
    run(wanted, tmp_path / "local")
    mortal = machines.add_node(num_cpus=1)
    ended = []

    def told(trial, record, before):
        if not ended:  # while the other machine works
            machines.remove_node(mortal, allow_graceful=False)
        ended.append((trial.key, before))

    back = Ray(Cluster(cpus=1))
    found = study(wanted, tmp_path / "ray", backend=back, on_trial=told, progress=False)
    assert sorted(key for key, _ in ended) == sorted({cell.trial.key for cell in found.cells})
    threads = {"threads": 1}
    ours, theirs = (
        {
            key: record | {"result": record["result"] | threads}
            for key, record in records(tmp_path / name).items()
        }
        for name in ("local", "ray")
    )
    assert ours == theirs and len(ours) == 6
    assert not list((tmp_path / "ray" / "trials").glob(".*"))


@pytest.mark.whole
def test_what_a_machine_was_doing_when_it_died_is_done_by_another(tmp_path, machines):
    mortal = machines.add_node(num_cpus=1)
    doomed = mortal.node_id

    def works(item):
        place = ray.get_runtime_context().get_node_id()
        (tmp_path / f"{item} {place}").touch()
        # It never ends on the machine that dies, and on the other one not before that has some.
        while place == doomed or not list(tmp_path.glob(f"* {doomed}")):
            time.sleep(0.05)
        return item

    def kill():
        while not list(tmp_path.glob(f"* {doomed}")):
            time.sleep(0.05)
        machines.remove_node(mortal, allow_graceful=False)

    with Cluster().join() as cluster, ThreadPoolExecutor() as killer:
        killed = killer.submit(kill)
        assert sorted(run_on_cluster(cluster, works, range(4), cpus=1)) == [0, 1, 2, 3]
        killed.result()
    (begun,) = tmp_path.glob(f"* {doomed}")
    assert len(list(tmp_path.glob(f"{begun.name.split()[0]} *"))) == 2


@pytest.mark.whole
@pytest.mark.parametrize("error", [InputError, ValueError])
def test_what_a_piece_of_work_raises_is_raised_here(machines, error):
    with Cluster().join() as cluster, pytest.raises(error, match="^not 3$"):

        def fails(item):
            raise error(f"not {item}")

        list(run_on_cluster(cluster, fails, [3], cpus=1))


@pytest.mark.whole
def test_results_come_in_order_where_that_matters(machines):
    def slow_at_first(item):
        time.sleep(0.3 if item == 0 else 0)
        return item

    with Cluster().join() as cluster:
        assert list(run_on_cluster(cluster, slow_at_first, range(4), cpus=1, in_order=True)) == [
            0,
            1,
            2,
            3,
        ]
        assert sorted(run_on_cluster(cluster, slow_at_first, range(4), cpus=1)) == [0, 1, 2, 3]


@pytest.mark.whole
def test_few_items_are_taken_before_their_results_are(machines):
    taken = []
    with Cluster().join() as cluster:
        items = (taken.append(n) or n for n in range(99))
        found = run_on_cluster(cluster, abs, items, cpus=1, in_order=True)
        assert next(found) == 0 and len(taken) < 20
        assert sum(1 for _ in found) == 98


@pytest.mark.whole
@pytest.mark.usefixtures("machines")
def test_rows_are_predicted_as_on_one_machine(tiny, reviews, tmp_path, monkeypatch):
    monkeypatch.setattr("layerscout.predicting.run.CHUNK", 5)
    ls.tune(tiny, reviews, "head:2", progress=False).save(tmp_path / "out")
    for name, cluster in (("local", None), ("ray", Cluster(cpus=1))):
        output = tmp_path / f"{name}.csv"
        ls.predict(tmp_path / "out", reviews, output, cluster=cluster, progress=False)
    local, spread = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("local", "ray"))
    pd.testing.assert_frame_equal(spread, local, rtol=1e-4)
    assert len(local) > 10


def dying():
    """Return work that kills its process; a nested function travels without its module."""

    def dies(_):
        os._exit(1)

    return dies


@pytest.mark.whole
def test_work_that_kills_every_process_ends(machines, monkeypatch):
    monkeypatch.setattr("layerscout.cluster.RETRIES", 1)
    with (
        Cluster().join() as cluster,
        pytest.raises(LayerscoutError, match="processes of the cluster died 2 times"),
    ):
        list(run_on_cluster(cluster, dying(), [0], cpus=1))


@pytest.mark.whole
@pytest.mark.usefixtures("machines")
def test_cores_that_others_use_are_awaited_with_a_word(monkeypatch, capsys):
    monkeypatch.setattr("layerscout.progress.WAIT_SECONDS", 0.1)
    with Cluster().join() as cluster:
        free = cluster.available_resources
        held = cluster.remote(num_cpus=1)(lambda: time.sleep(3)).remote()
        while free().get("CPU"):
            time.sleep(0.05)
        assert list(run_on_cluster(cluster, abs, [-3], cpus=1)) == [3]
        del held
    assert "cores or GPUs of the Ray cluster were all in use" in capsys.readouterr().err


@pytest.mark.whole
def test_work_that_no_machine_has_room_for_is_refused(machines):
    with Cluster().join() as cluster:
        with pytest.raises(InputError, match="no machine .* 64 cores and 0 GPUs .* with 1 cores"):
            list(run_on_cluster(cluster, dying(), [0], cpus=64))
        with pytest.raises(InputError, match="1 cores and 2 GPUs"):
            list(run_on_cluster(cluster, dying(), [0], gpus=2))


@pytest.mark.whole
def test_a_machine_that_dies_leaves_a_scan_as_it_is(tiny, tmp_path, machines, monkeypatch):
    folder, _ = shards(tmp_path / "shards", "parquet", [50] * 6)
    options = {"scores": ["nc1", "ridge"], "cluster": Cluster(cpus=1), "progress": False}
    local = scan(str(tiny), folder, **options | {"cluster": None})
    whole = scan(str(tiny), folder, **options)
    for key, score in whole.scores.items():
        assert score.values == pytest.approx(local.scores[key].values, rel=1e-4), key
    mortal = machines.add_node(num_cpus=1)
    shutil.rmtree(os.environ["LAYERSCOUT_CACHE"])

    def spread_until_one_dies(*given, **options):
        for number, result in enumerate(run_on_cluster(*given, **options)):
            yield result
            if number == 0:  # while the other machine reads
                machines.remove_node(mortal, allow_graceful=False)

    monkeypatch.setattr("layerscout.cluster.run_on_cluster", spread_until_one_dies)
    assert scan(str(tiny), folder, **options).scores == whole.scores
    assert not mortal.any_processes_alive()
