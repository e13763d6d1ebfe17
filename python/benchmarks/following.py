"""Measures a copy that follows a filter: its look-ups, and what it costs the server.

`make bench ONLY=following` runs it several times. Arguments: the port of a server, and the seconds of a measurement.
Prints a line for each figure: what it is, its unit, and its value, with tabs between them.
"""

import multiprocessing
import sys
import time
from collections.abc import Callable

import redis
from oxbloom import LiveFilter

FOLLOWERS, PROCESSES = 100, 2
RATE, BATCH = 10_000, 100  # additions a second, and in a command
ITEMS = [f"https://example.com/page/{number}" for number in range(100_000)]


def report(title: str, unit: str, value: float) -> None:
    print(title, unit, value, sep="\t", flush=True)


def rate(operation: Callable[[], object], times: int) -> float:
    """Returns how often an operation runs in a second."""
    begin = time.perf_counter()
    for _ in range(times):
        operation()
    return times / (time.perf_counter() - begin)


def processor_time(client: redis.Redis) -> float:
    cpu = client.info("cpu")
    return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


def bytes_sent(client: redis.Redis) -> int:
    return int(client.info("stats")["total_net_output_bytes"])


def measure_additions(client: redis.Redis, followed_by: str) -> None:
    client.config_resetstat()
    for start in range(0, len(ITEMS), BATCH):
        pipeline = client.pipeline(transaction=False)
        for item in ITEMS[start : start + BATCH]:
            pipeline.execute_command("BF.ADD", "seen", f"{followed_by}: {item}")
        pipeline.execute()
    microseconds = client.info("commandstats")["cmdstat_bf.add"]["usec_per_call"]
    report(f"BF.ADD, command, followed by {followed_by}", "nanoseconds", 1000 * microseconds)


def measure_lookups(client: redis.Redis, seen: LiveFilter) -> None:
    items, thousand = iter(ITEMS * 5), ITEMS[:1000]
    for title, each, times, look_up in (
        ("`item in seen`", 1, 500_000, lambda: next(items) in seen),
        ("`seen.contains_all` of 100,000", len(ITEMS), 10, lambda: seen.contains_all(ITEMS)),
        ("BF.MEXISTS of 1,000", 1000, 200, lambda: send(client, "BF.MEXISTS", *thousand)),
        ("BF.EXISTS", 1, 5000, lambda: send(client, "BF.EXISTS", ITEMS[0])),
    ):
        report(f"look-ups a second, {title}", "number", each * rate(look_up, times))


def measure_network(client: redis.Redis, seen: LiveFilter, seconds: int) -> None:
    seen.sync()
    sent, begin = bytes_sent(client), time.perf_counter()
    for batch in range(seconds * RATE // BATCH):
        send(client, "BF.MADD", *(f"{begin} {batch} {number}" for number in range(BATCH)))
        time.sleep(max(0.0, begin + (batch + 1) * BATCH / RATE - time.perf_counter()))
    seen.sync()
    took = time.perf_counter() - begin
    replies = seconds * RATE * len(":1\r\n")
    changes = bytes_sent(client) - sent - replies
    report("bytes a second, 10,000 additions a second", "bytes", changes / took)


def send(client: redis.Redis, command: str, *items: str) -> None:
    client.execute_command(command, "seen", *items)


def follow(port: int, count: int) -> None:
    copies = [LiveFilter(redis.Redis(port=port), "seen", interval=0.1) for _ in range(count)]
    time.sleep(600)
    del copies


def measure_followers(client: redis.Redis, port: int, seconds: int) -> None:
    spawn, count = multiprocessing.get_context("spawn"), FOLLOWERS // PROCESSES
    others = [spawn.Process(target=follow, args=(port, count)) for _ in range(PROCESSES)]
    for other in others:
        other.start()
    try:
        while len(client.client_list()) < FOLLOWERS:
            time.sleep(0.1)
        time.sleep(1)
        before, begin = processor_time(client), time.perf_counter()
        time.sleep(seconds)
        share = (processor_time(client) - before) / (time.perf_counter() - begin)
        report(f"CPU, {FOLLOWERS} clients that ask ten times a second", "percent", 100 * share)
        measure_additions(client, f"{FOLLOWERS} clients")
    finally:
        for other in others:
            other.kill()
            other.join()


def main() -> None:
    port, seconds = map(int, sys.argv[1:])
    client = redis.Redis(port=port)
    client.delete("seen")
    client.execute_command("BF.RESERVE", "seen", 0.01, 1_000_000)
    send(client, "BF.MADD", *ITEMS)
    measure_additions(client, "nobody")
    with LiveFilter(client, "seen") as seen:
        measure_additions(client, "one client")
        measure_lookups(client, seen)
        measure_network(client, seen, seconds)
    measure_followers(client, port, seconds)


if __name__ == "__main__":
    main()
