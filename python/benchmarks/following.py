"""Measures a copy that follows a filter: its look-ups, and what it costs the server. `make bench-following` runs it."""

import multiprocessing
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import redis
from oxbloom import LiveFilter, module_path

PORT = 17_650
FOLLOWERS, PROCESSES = 100, 2
SECONDS = 5.0
ITEMS = [f"https://example.com/page/{number}" for number in range(100_000)]


@contextmanager
def server() -> Iterator[redis.Redis]:
    command = [
        "redis-server",
        "--port",
        str(PORT),
        "--save",
        "",
        "--loadmodule",
        str(module_path()),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    client = redis.Redis(port=PORT)
    try:
        while True:
            try:
                client.ping()
                break
            except redis.ConnectionError:
                time.sleep(0.05)
        client.execute_command("BF.RESERVE", "seen", 0.01, 10_000_000)
        yield client
    finally:
        process.kill()
        process.wait()


def rate(operation: Callable[[], object], times: int) -> float:
    """Returns how often an operation runs in a second."""
    begin = time.perf_counter()
    for _ in range(times):
        operation()
    return times / (time.perf_counter() - begin)


def processor_time(client: redis.Redis) -> float:
    cpu = client.info("cpu")
    return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


def microseconds_per_addition(client: redis.Redis, since: int) -> float:
    client.config_resetstat()
    for start in range(0, 100_000, 100):
        pipeline = client.pipeline(transaction=False)
        for number in range(start, start + 100):
            pipeline.execute_command("BF.ADD", "seen", f"{since}:{number}")
        pipeline.execute()
    return float(client.info("commandstats")["cmdstat_bf.add"]["usec_per_call"])


def follow(count: int) -> None:
    copies = [LiveFilter(redis.Redis(port=PORT), "seen", interval=0.1) for _ in range(count)]
    time.sleep(600)
    del copies


def main() -> None:
    with server() as client:
        client.execute_command("BF.MADD", "seen", *ITEMS)
        alone = microseconds_per_addition(client, 0)
        with LiveFilter(client, "seen") as seen:
            print("| look-ups a second, one process | |\n|---|--:|")
            items = iter(ITEMS * 10)
            print(f"| `item in seen` | {rate(lambda: next(items) in seen, 500_000):,.0f} |")
            many = len(ITEMS) * rate(lambda: seen.contains_all(ITEMS), 20)
            print(f"| `seen.contains_all`, 100,000 each | {many:,.0f} |")
            thousand = ITEMS[:1000]
            mexists = rate(lambda: client.execute_command("BF.MEXISTS", "seen", *thousand), 200)
            print(f"| BF.MEXISTS, 1,000 each | {1000 * mexists:,.0f} |")
            exists = rate(lambda: client.execute_command("BF.EXISTS", "seen", ITEMS[0]), 5000)
            print(f"| BF.EXISTS | {exists:,.0f} |\n")
            followed = microseconds_per_addition(client, 1)
            print(f"BF.ADD: {alone:.2f} µs alone, {followed:.2f} µs while it is followed.")
            # 10,000 additions a second.
            seen.sync()
            sent = int(client.info("stats")["total_net_output_bytes"])
            begin = time.perf_counter()
            for batch in range(int(SECONDS * 100)):
                client.execute_command("BF.MADD", "seen", *(f"2:{batch}:{n}" for n in range(100)))
                time.sleep(max(0.0, begin + (batch + 1) / 100 - time.perf_counter()))
            seen.sync()
            took = time.perf_counter() - begin
            replies = SECONDS * 10_000 * 4  # `:1` and a line end for each addition
            changes = int(client.info("stats")["total_net_output_bytes"]) - sent - replies
            print(
                f"{SECONDS * 10_000 / took:,.0f} additions a second: {changes / took:,.0f} bytes a second."
            )
        context = multiprocessing.get_context("spawn")
        others = [
            context.Process(target=follow, args=(FOLLOWERS // PROCESSES,)) for _ in range(PROCESSES)
        ]
        for other in others:
            other.start()
        while len(client.client_list()) < FOLLOWERS:
            time.sleep(0.1)
        time.sleep(2)
        before = processor_time(client)
        time.sleep(SECONDS)
        share = (processor_time(client) - before) / SECONDS
        print(
            f"{FOLLOWERS} followers that ask ten times a second: {100 * share:.1f} % of a processor."
        )
        for other in others:
            other.kill()
            other.join()


if __name__ == "__main__":
    main()
