"""Where the time goes, counted by hand."""

import pytest

from controller.simulation.world.worker_time import WorkerTimeLedger


def test_every_worker_is_counted_once_at_every_moment() -> None:
    ledger = WorkerTimeLedger(num_workers=10, gpus_per_worker=2, tasks=["a", "b"])
    ledger.task(0.0, "a", "training", workers=4, waf=7.0)
    ledger.out_of_service(3600.0, 2)
    ledger.task(3600.0, "a", "detection", workers=2)
    ledger.task(7200.0, "a", "training", workers=4, waf=7.0, speed=0.5)
    ledger.task(7200.0, "b", "stopped", workers=0)
    account = ledger.close(10800.0)
    assert account.waf == pytest.approx(7.0 * 3600 + 7.0 * 0.5 * 3600)
    hours = account.gpu_hours
    assert hours["training"] == pytest.approx(2 * (4 + 2))
    assert hours["slow"] == pytest.approx(2 * 2)
    assert hours["detection"] == pytest.approx(2 * 2)
    assert hours["repair"] == pytest.approx(2 * (2 + 2))
    assert hours["waiting"] == pytest.approx(2 * (6 + 6 + 4))
    assert sum(hours.values()) == pytest.approx(2 * 10 * 3)
    # a trains an hour, and one at half speed; b waits for two hours and is stopped for one.
    assert 0 < account.ettr <= account.availability
    assert account.availability == pytest.approx(1.5 / 5)
