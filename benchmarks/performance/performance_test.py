# SPDX-License-Identifier: Apache-2.0
"""The grid, cache keys, figures, tables and the comparison; without root, without a network."""
import argparse
import contextlib
import copy
import importlib.util
import io
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

from benchmarks.performance import __main__ as command
from benchmarks.performance import calculated, dense_path, figures, grid, machine, measure, pages, plots, record, tables
from benchmarks.simulate import compare

HERE = pathlib.Path(__file__).resolve().parent
ON = {"cpu": "a CPU", "cores": 2, "memory_gib": 8, "kernel": "6.1"}
CELLS = [grid.Cell("resnet-50", 4, "1x")]  # of recorded()


def turn(seconds, bound=None, **more):
    made = {"median_seconds": sorted(seconds)[len(seconds) // 2], "seconds": seconds,
            "cpu_seconds_per_step": 0.05, "retransmits": 3, "dropped": 0, "peak_to_mean": 1.4,
            "max_to_mean_bytes": 1.001, "window_seconds": 2.0, "wire_bytes_per_step": 20_000_000}
    if bound:
        made |= {"t_star": bound, "t_wfbp": 0.4, "predicted_seconds": 0.31, "single_worker_seconds": 0.25,
                 "payload_bytes_per_step": 19_000_000, "by_factors": ["fc"]}
    return made | more


def recorded():
    """A small result of a cell, as it is stored."""
    cell = grid.Cell("resnet-50", 4, "1x")
    gate = {"passed": True, "reason": "", "round_trip_seconds": 40e-6, "attempts": 1,
            **{phase: {"least_share": 0.951, "retransmits": 0, "machine_busy": 0.3}
               for phase in ("ring", "all_to_all", "incast")}}
    return {"key": "k", "machine": ON, "date": "2026-01-02", "name": cell.name, "cell": cell.described(),
            "versions": {"poseidon": "abc", "gcc": "12", "python": "3.11", "torch": "2.13"}, "gate": gate,
            "systems": {
                "poseidon": {"turns": [turn([0.300, 0.302, 0.304], 0.298), turn([0.301, 0.303, 0.305], 0.298)]},
                "dense": {"turns": [turn([0.310, 0.312, 0.314], 0.306)]},
                "wfbp": {"turns": [turn([0.40, 0.41, 0.42], 0.306)]},
                "ddp-1": {"turns": [turn([0.50, 0.51, 0.52])]},
                "ddp-4": {"turns": [turn([0.44, 0.45, 0.46])]}}}


def slower(result, system, factor):
    changed = copy.deepcopy(result)
    for one in changed["systems"][system]["turns"]:
        one["median_seconds"] *= factor
        one["seconds"] = [seconds * factor for seconds in one["seconds"]]
    return changed


class Grids(unittest.TestCase):
    def test_sizes_and_times(self):
        self.assertEqual(len(grid.smoke()), 2)
        self.assertEqual(len(grid.quick()), 12)
        for name, minutes in (("smoke", 4), ("quick", 45), ("full", 360)):
            with self.subTest(name):
                self.assertLessEqual(sum(cell.seconds for cell in grid.GRIDS[name]()) / 60, minutes)

    def test_names_are_unique_and_one_grid_holds_the_other(self):
        names = {name: [cell.name for cell in cells()] for name, cells in grid.GRIDS.items()}
        for cells in names.values():
            self.assertEqual(len(cells), len(set(cells)))
        self.assertLessEqual(set(names["smoke"]), set(names["quick"]))
        self.assertLessEqual(set(grid.quick()), set(grid.full()))

    def test_ports_stay_within_what_two_cores_carry(self):
        for cell in grid.full():
            with self.subTest(cell.name):
                self.assertLessEqual(cell.port_rate, grid.MOST_PORT_RATE[cell.workers])
                self.assertGreaterEqual(cell.scale, 1)
                self.assertAlmostEqual(cell.port_rate * cell.scale / cell.real_rate, 1, 6)
                self.assertIn("poseidon", cell.systems)

    def test_rates_in_ridges(self):
        once, twice = grid.Cell("vgg19", 4, "1x"), grid.Cell("vgg19", 4, "2x")
        self.assertAlmostEqual(twice.real_rate, 2 * once.real_rate)
        self.assertEqual(grid.Cell("vgg19", 4, 10e9).real_rate, 10e9)


    def test_what_stands_beside_the_grid(self):
        beside = grid.beside()
        names = {cell.name for cell in grid.full() + grid.smoke()}
        self.assertFalse(names & {cell.name for cell in beside})
        self.assertEqual({cell.compute for cell in beside if cell.full_size}, {"sleep", "spin"})
        for cell in beside:
            if cell.full_size:
                self.assertEqual((cell.scale, cell.workers), (1, 2))
        self.assertLessEqual(sum(cell.seconds for cell in beside) / 60, 11)
        self.assertEqual([cell.port_rate for cell in beside if cell.latency], [200e6])
        self.assertEqual(grid.DELAYED_PORT_RATE, measure.emulation.LATENCY_RATE)
        self.assertEqual({(cell.nodes, cell.per_node) for cell in beside if cell.per_node > 1},
                         {(2, 2), (2, 4)})

    def test_flat_workers_share_the_port_of_their_machine(self):
        cell = grid.Cell("vgg19-22k", 4, 10e9, per_node=2)
        self.assertEqual((cell.nodes, cell.port_rate), (2, 1e9))
        # Of a worker's bytes two thirds cross, on half a port.
        self.assertEqual(measure.rate_of_a_worker(cell, grid.SYSTEMS["flat"]), 0.75e9)
        self.assertEqual(measure.rate_of_a_worker(cell, grid.SYSTEMS["levels"]), 1e9)

    def test_ours_stands_beside_the_system_of_2017_everywhere(self):
        for cell in grid.full() + grid.smoke() + grid.beside():
            self.assertTrue("ps-2017" in cell.systems or cell.per_node > 1)


class Keys(unittest.TestCase):
    def test_changes_with_every_input(self):
        cell = grid.Cell("resnet-50", 4, "1x")
        others = [(grid.Cell("resnet-50", 4, "2x"), "s", ON), (grid.Cell("vgg16", 4, "1x"), "s", ON),
                  (grid.Cell("resnet-50", 2, "1x"), "s", ON),
                  (grid.Cell("resnet-50", 4, "1x", queue=0.001), "s", ON),
                  (grid.Cell("resnet-50", 4, "1x", jitter=0.02), "s", ON),
                  (grid.Cell("resnet-50", 4, "1x", per_node=2), "s", ON),
                  (grid.Cell("resnet-50", 4, "1x", background=0.2), "s", ON),
                  (grid.Cell("resnet-50", 4, "1x", latency=0.005), "s", ON),
                  (grid.Cell("resnet-50", 4, "1x", compute="spin"), "s", ON),
                  (grid.Cell("resnet-50", 4, "1x", repeats=3), "s", ON),
                  (cell, "t", ON), (cell, "s", ON | {"kernel": "6.2"})]
        keys = [measure.key_of(*inputs) for inputs in [(cell, "s", ON), *others]]
        self.assertEqual(len(keys), len(set(keys)))
        self.assertEqual(keys[0], measure.key_of(grid.Cell("resnet-50", 4, "1x"), "s", dict(ON)))

    def test_sources_count_but_tests_and_prose_do_not(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "core").mkdir()
            (root / "core" / "a.cc").write_text("int a;")
            first = machine.sources(root, ("core",))
            (root / "core" / "README.md").write_text("prose")
            (root / "core" / "a_test.cc").write_text("a test")
            self.assertEqual(machine.sources(root, ("core",)), first)
            (root / "core" / "a.cc").write_text("int b;")
            self.assertNotEqual(machine.sources(root, ("core",)), first)
            second = machine.sources(root, ("core",))
            (root / "core" / "a.cc").rename(root / "core" / "b.cc")
            self.assertNotEqual(machine.sources(root, ("core",)), second)

    def test_the_machine_has_no_name_and_no_path(self):
        text = json.dumps(machine.machine())
        self.assertNotIn("/", text)
        self.assertEqual(set(machine.machine()), {"cpu", "cores", "memory_gib", "kernel"})


class Turns(unittest.TestCase):
    CELL = grid.Cell("mlp", 2, 1e9)

    def ranks(self, steps, offset=0.0):
        summary = {"summary": {"mode": "poseidon", "t_star": 0.3, "payload_bytes_per_step": 10,
                               "schemes": {"fc1": "sfb", "fc2": "kv"}}}
        return [[*({"rank": r, "step": i, "ended": 0.3 * i, "seconds": 0.3 + r * offset, "cpu_seconds": 0.01,
                    "core_wait_seconds": 0.003}
                   for i in range(steps)), summary] for r in range(2)]

    def test_a_step_is_the_mean_of_the_ranks(self):
        found = measure.turn_of(self.CELL, self.ranks(self.CELL.steps, 0.2), [], [])
        self.assertAlmostEqual(found["median_seconds"], 0.4)
        self.assertAlmostEqual(found["cpu_seconds_per_step"], 0.02)
        self.assertAlmostEqual(found["core_wait_seconds_per_step"], 0.006)
        self.assertEqual(found["by_factors"], ["fc1"])

    def test_a_step_that_none_follows_is_left_out(self):
        ranks = self.ranks(self.CELL.steps + 1)
        for lines in ranks:
            lines[-2]["seconds"] = 9.0
        found = measure.turn_of(self.CELL, ranks, [], [])
        self.assertEqual(len(found["seconds"]), self.CELL.steps)
        self.assertAlmostEqual(found["median_seconds"], 0.3)

    def test_missing_steps_are_a_failure(self):
        with self.assertRaises(measure.Failed):
            measure.turn_of(self.CELL, self.ranks(self.CELL.steps - 1), [], [])

    def test_stolen_time_is_that_of_the_measured_steps(self):
        end = 0.3 * (self.CELL.steps - 1)
        samples = [[i / 10, [i, i], [i, i], [200 * i, 100 * i, 50 * min(i, -3)]] for i in range(-20, int(10 * end) + 20)]
        self.assertEqual(measure.turn_of(self.CELL, self.ranks(self.CELL.steps), samples, [])["window_stolen"], 0)
        for sample in samples:
            sample[3][2] = 20 * max(-3, min(sample[0] * 10, 10 * end))
        self.assertEqual(measure.turn_of(self.CELL, self.ranks(self.CELL.steps), samples, [])["window_stolen"], 0.1)
        self.assertNotIn("window_stolen", measure.turn_of(self.CELL, self.ranks(self.CELL.steps), [], []))

    def test_bursts_are_those_of_the_measured_steps(self):
        # A burst of the start at 0 s, then 1 s of 10 kB per 10 ms with one of 30 kB, then what nobody measures.
        samples, sent = [[-1.0, [0, 0], [0, 0]], [0.0, [9_000_000] * 2, [9_000_000] * 2]], 9_000_000
        for i in range(1, 101):
            sent += 30_000 if i == 50 else 10_000
            samples.append([i / 100, [sent] * 2, [sent] * 2])
        samples.append([1.5, [sent + 9_000_000] * 2, [sent + 9_000_000] * 2])
        found = measure.burstiness(measure.between(samples, 0.0, 1.0), 2, 10)
        self.assertAlmostEqual(found["peak_to_mean"], 3 / 1.02, 2)
        self.assertEqual(found["max_to_mean_bytes"], 1)
        self.assertEqual(found["wire_bytes_per_step"], 102_000)
        self.assertEqual(found["window_seconds"], 1)
        self.assertEqual(measure.burstiness(measure.between(samples, 0.0, 2.0), 2, 10), {}, "the samples end before")

    def test_a_step_that_overlaps_the_next_sends_as_much_as_one_that_does_not(self):
        # 100 kB per step of 0.1 s: one sends in the first half of each, the other keeps on over the step's end.
        for begin, end in (0.0, 0.05), (0.07, 0.12):
            sent, samples = 0.0, []
            for i in range(301):
                at = i / 250
                samples.append([at, [sent] * 2, [sent] * 2])
                sent += sum(100_000 * max(0.0, min(at + 0.004, k / 10 + end) - max(at, k / 10 + begin)) / (end - begin)
                            for k in range(12))
            found = measure.burstiness(measure.between(samples, 0.2003, 0.9003), 2, 7)
            self.assertAlmostEqual(found["wire_bytes_per_step"] / 100_000, 1, 2)

    def test_frames_of_a_layer_become_one_span(self):
        spans = [["compute", "forward", 0, 5, 10.0, 10.1, 0], ["send", "push", 0, 5, 10.10, 10.11, 9],
                 ["send", "push", 0, 5, 10.111, 10.12, 9], ["send", "push", 1, 5, 10.12, 10.13, 9],
                 ["send", "push", 0, 5, 10.2, 10.21, 9], ["send", "push", 0, 4, 9.8, 9.9, 9]]
        self.assertEqual(measure.merged(spans), [
            ["compute", 0, 0, 0.1], ["send", 0, 0.1, 0.12], ["send", 1, 0.12, 0.13], ["send", 0, 0.2, 0.21]])

    def test_what_mpirun_joins_is_told_apart(self):
        a, b = ([{"rank": rank, "step": step} for step in range(2)] for rank in range(2))
        self.assertEqual(measure.by_rank([b[0], a[0], a[1], b[1]], 2), [a, b])

    def test_a_machine_that_was_disturbed_gives_no_figure(self):
        after = {"ring": {"least_share": 0.951}, "all_to_all": {"least_share": 0.948}, "incast": {"least_share": 0.8}}
        self.assertEqual(measure.disturbed(after), "")
        after["all_to_all"]["least_share"] = 0.91
        self.assertIn("after the turns the goodput in the all_to_all measurement was 91.0%", measure.disturbed(after))
        self.assertEqual(measure.disturbed({phase: {} for phase in after}), "")  # without a rate

    def test_a_hiccup_after_the_turns_is_forgiven_a_slow_machine_is_not(self):
        fine = {"ring": {"least_share": 0.951}, "all_to_all": {"least_share": 0.948}}
        hiccup = {"ring": {"least_share": 0.85}, "all_to_all": {"least_share": 0.948}}
        for calibrations, taken in ([hiccup, fine], fine), ([hiccup] * measure.ATTEMPTS, hiccup):
            with unittest.mock.patch.object(measure.calibration, "calibrate", side_effect=calibrations):
                self.assertEqual(measure.calibrate_after(None), taken)

    def test_a_turn_that_others_disturbed_is_taken_again_whatever_its_figures_are(self):
        cell = grid.Cell("mlp", 2, "1x", systems=("poseidon", "dense"))
        wanted = cell.repeats * len(cell.systems)
        most = measure.cores.MOST_STOLEN

        def stolen(shares):
            turns = (turn([0.1 * (1 + i)], 0.1, machine_stolen=0.0, window_stolen=s) for i, s in enumerate(shares))
            systems = {}
            with (tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(measure.cores, "await_quiet"),
                  unittest.mock.patch.object(measure, "run_turn", side_effect=turns)):
                measure.take_turns(cell, None, pathlib.Path(folder), systems, lambda line: None)
            return systems

        systems = stolen([most, 2 * most, 0.5] + [0.0] * (wanted - 1))
        taken = [t["median_seconds"] for system in systems.values() for t in system["turns"]]
        self.assertEqual(sorted(taken), [0.1] + [0.1 * (1 + i) for i in range(3, 3 + wanted - 1)])
        self.assertEqual({len(system["turns"]) for system in systems.values()}, {cell.repeats})
        self.assertEqual(figures.thrown_away(systems), 2)
        self.assertEqual(tables.thrown_away_words(systems), "2")
        self.assertEqual(tables.thrown_away_words(recorded()["systems"]), "-")
        with self.assertRaisesRegex(measure.Disturbed, "others took more than 2% of the machine during 9 turns"):
            stolen([0.04] * (measure.THROWN_AWAY * wanted + 1))

    def test_no_folder_is_published(self):
        self.assertEqual(measure.without_paths("cannot open /some/where/token: gone"), "cannot open token: gone")


class Medians(unittest.TestCase):
    def test_turns_of_different_plans_are_each_held_to_their_own_bound(self):
        result = recorded()
        result["systems"]["poseidon"]["turns"] = [
            turn([0.30] * 3, 0.30), turn([0.44] * 3, 0.40, payload_bytes_per_step=10_000_000, by_factors=[])]
        found = figures.figures_of(result)["poseidon"]
        self.assertAlmostEqual(found.to_bound, 1.05)
        self.assertEqual(found.quartiles, (0.30, 0.44), "seconds, as the plots want them")
        self.assertEqual(found.plans, [(19_000_000, ("fc",)), (10_000_000, ())])
        rows = [line for line in tables.scheme_table([result]).splitlines()[2:]]
        self.assertEqual([row.split(" | ")[-1] for row in rows], ["fc |", "none |"])

    def test_bytes_that_were_read_too_long_are_not_told(self):
        result = recorded()
        for system in result["systems"].values():
            for one in system["turns"]:
                del one["window_seconds"]
        found = figures.figures_of(result)
        self.assertIsNone(found["dense"].first["wire_bytes_per_step"])
        self.assertEqual(found["ddp-1"].first["wire_bytes_per_step"], 20_000_000)
        result["cell"] = result["cell"] | {"background": 0.2}
        self.assertIsNone(figures.figures_of(result)["ddp-1"].first["peak_to_mean"])

    def test_ddp_is_held_to_the_dense_bound(self):
        found = figures.figures_of(recorded())
        self.assertEqual(list(found), ["poseidon", "dense", "wfbp", "ddp-1", "ddp-4"])
        self.assertEqual(found["ddp-4"].bound, 0.306)
        self.assertAlmostEqual(found["poseidon"].seconds, 0.3025)


class Tables(unittest.TestCase):
    def test_the_document_is_complete(self):
        cells = [grid.Cell("resnet-50", 4, "1x"), grid.Cell("mlp", 2, 1e9)]
        text = tables.document(cells, [recorded()], [("bytes.svg", "Bytes per scheme."), ("speed-up.svg", None)])
        self.assertNotIn("{{", text)
        self.assertIn("1 of the 2 cells that are here in detail were measured, and 1 of the 105 of the full", text)
        self.assertIn("Not measured yet: `mlp-p2-1G`", text)
        self.assertIn("(bytes.svg)", text)
        self.assertIn("`speed-up.svg` needs results", text)
        self.assertIn("prediction within 5 % in 3 of 3 turns", text)
        # Ratio to T*, DDP's best against Poseidon.
        row = next(line for line in text.splitlines() if line.startswith("| resnet-50, P=4") and "0.298" in line)
        self.assertIn("1.015 [1.01", row)
        self.assertIn("| 1.49 |", row)
        for line in re.findall(r"^\|.*\|$", text, re.M):
            self.assertGreater(line.count("|"), 2, line)

    def test_rows_are_as_wide_as_their_heads(self):
        text = tables.document(CELLS, [recorded()], [])
        for block in re.findall(r"(?:^\|.*\|\n)+", text, re.M):
            widths = {line.count("|") for line in block.splitlines()}
            self.assertEqual(len(widths), 1, block)

    def test_what_misses_a_goal_is_named(self):
        self.assertIn("1 of 1 cells within 1.02", tables.goals([recorded()]))
        missed = [slower(recorded(), "poseidon", 1.6)]
        self.assertIn("0 of 1 cells within 1.02", tables.goals(missed))
        self.assertIn("slower than DDP, Poseidon: resnet-50", tables.goals(missed))
        self.assertIn("dense takes 0.645 of Poseidon's step in the median, at most 0.64, within 0.5% in 0 of 1 cells, "
                      "less in 1: resnet-50", tables.goals(missed))
        asked = recorded() | {"name": "vgg19-22k-p8-10G"}
        self.assertIn("dense only: 1.44 times DDP, asked 1.2.", tables.goals([asked]))
        self.assertEqual(tables.missed_table([recorded()]), "None.")
        simulated = {"points": [{"profile": "resnet-50", "workers": 4, "rate": "1x", "ratio": 1.004}]}
        as_scaled = {"runs": [{"cell": "resnet-50-p4-1x", "system": "poseidon", "simulated_seconds": 0.298 * 1.2}]}
        rows = tables.missed_table(missed, simulated, as_scaled).splitlines()[2:]
        self.assertEqual(len(rows), 1)
        self.assertRegex(rows[0], r"Poseidon \| 1\.624 .* \| 1\.200 \| 1\.004 \| 5\.07 \| 5% \| - \| - \| 3 \| 0\.64")

    def test_cores_that_were_missing_are_told(self):
        waited = recorded()
        for one in waited["systems"]["dense"]["turns"]:
            one |= {"core_wait_seconds_per_step": 4 * 0.0312, "machine_stolen": 0.3, "window_stolen": 0.011}
        rows = {row.split(" | ")[1]: row.split(" | ") for row in tables.cpu_table([waited]).splitlines()[2:]}
        self.assertEqual(rows["dense"][4:6], ["10.0%", "1.1%"])
        self.assertEqual(rows["poseidon"][4:6], ["-", "-"])

    def test_every_cell_has_its_place(self):
        jittered = recorded() | {"name": "resnet-50-p4-1x-jitter5"}
        jittered["cell"] = jittered["cell"] | {"jitter": 0.05}
        other = slower(recorded(), "dense", 1.1) | {"name": "resnet-50-p8-2x"}
        other["cell"] = other["cell"] | {"workers": 8, "rate": "2x", "real_rate_bits": 12e9}
        text = tables.document(CELLS, [jittered, other, recorded()], [])
        self.assertIn("| resnet-50 | - | - | - | - | - | 1.015 | - | - | - | - | 1.015 | - |", text)
        self.assertIn("| resnet-50 | - | - | - | - | - | 1.020 | - | - | - | - | **1.122** | - |", text)
        self.assertIn("jitter 5% | 1.015 | 1.020 | 1.49 |", text)
        self.assertEqual(text.count("| resnet-50, P=8, 12 Gbit/s"), 1, "in detail only where it was asked for")
        self.assertRegex(text, r"\| vgg19-22k, P=8, [\d.]+ Gbit/s \(1x ridge\), jitter 5% \| - \| - \| - \|")
        every = tables.every_cell([jittered, other, recorded()])
        self.assertNotIn("{{", every)
        firsts = [line.split(" | ")[0] for line in every.splitlines() if line.startswith("| resnet-50")][:3]
        self.assertEqual([("jitter" in first, "P=8" in first) for first in firsts],
                         [(False, False), (True, False), (False, True)])

    def test_refused_and_failed_cells_are_named(self):
        refused = recorded() | {"refused": "the goodput is 80 %", "systems": {}}
        failed = recorded()
        failed["systems"]["dear"] = {"turns": [], "failed": "rank 1 ended with 1"}
        text = tables.document(CELLS, [refused, failed], [])
        self.assertIn("refused by the gate: the goodput is 80 %", text)
        self.assertIn("dear did not finish: rank 1 ended with 1", text)


class Agreement(unittest.TestCase):
    MADE = {"runs": [{"cell": "resnet-50-p4-1x", "system": system, "emulated_seconds": 1.0,
                      "simulated_seconds": seconds} for system, seconds in (("poseidon", 0.98), ("dense", 0.9))]}

    def test_runs_that_are_off_are_named(self):
        text = tables.document(CELLS, [recorded()], [], agreement=self.MADE)
        self.assertIn("1 of 2 runs of 1 cells within 5 % of the emulated step; mean of the errors' size 6.0%", text)
        self.assertIn("- `resnet-50-p4-1x`, dense: -10.0%", text)
        self.assertIn("(1x ridge) | 0.980 | 0.900 |", tables.every_cell([recorded()], self.MADE))

    def test_it_is_made_again_when_a_cell_is_measured_again(self):
        command = calculated.COMMANDS["agreement"]
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            keys = [command.key("s", folder)]
            for stem, text in (("dense-path", "other"), ("recorded", "{}"), ("recorded", "[]")):
                (folder / f"{stem}.json").write_text(text)
                keys.append(command.key("s", folder))
        self.assertEqual(keys[0], keys[1])
        self.assertEqual(len(set(keys)), 3)

    def test_only_what_the_simulator_knows_is_compared(self):
        with unittest.mock.patch.object(compare, "simulated", return_value=0.3):
            runs = list(compare.runs_of(recorded(), None))
            shared = recorded()
            shared["cell"] = shared["cell"] | {"per_node": 2}
            self.assertEqual(list(compare.runs_of(shared, None)), [])
        self.assertEqual([run["system"] for run in runs], ["poseidon", "dense", "wfbp"])
        self.assertEqual(runs[0]["emulated_seconds"], 0.302)

    def test_a_cell_that_is_not_there_is_one_sentence(self):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(compare.main(["nowhere.json"]), 1)
        self.assertRegex(said.getvalue(), r"^compare: .*'nowhere\.json'\n$")

    def test_a_profile_that_is_unknown_is_one_sentence(self):
        done = subprocess.run([sys.executable, "-B", "-m", "benchmarks.simulate.settings", "vgg19", "resnet50"],
                              cwd=machine.ROOT, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr.splitlines()[-1], "profile 'resnet50' is unknown, expected .*, resnet-50, ")


def path_row(size, ours, gloo, cpu=0.5):
    row = {"bytes": size}
    for name, seconds in (("poseidon", ours), ("tls", 2 * ours), ("gloo-1", gloo), ("gloo-4", 1.1 * gloo),
                          ("bare", 0.8 * gloo)):
        row[name] = {"seconds": [0.9 * seconds, seconds, 1.1 * seconds],
                     "cpu_seconds": [cpu * seconds] * 3}
    return row


class DensePath(unittest.TestCase):
    MEASURED = {"machine": ON, "rows": {"2": [path_row(1024, 2e-4, 1e-4), path_row(64 << 20, 0.04, 0.08)],
                                        "4": [path_row(64 << 20, 0.2, 0.21)]}}

    def test_the_faster_gloo_counts_round_by_round(self):
        row = path_row(1024, 2e-4, 1e-4)
        self.assertEqual(dense_path.best_gloo(row), "gloo-1")
        self.assertAlmostEqual(dense_path.ratio(row), 0.5)
        row["gloo-1"]["seconds"][0] *= 100  # one round was disturbed
        self.assertAlmostEqual(dense_path.ratio(row), 0.5)

    def test_sizes_that_miss_are_named(self):
        goals = tables.dense_path_goals(self.MEASURED)
        self.assertIn("P=2: 1 of 1 sizes from 64 MiB at 1.3 times", goals)
        self.assertIn("slower at 1 KiB (0.50)", goals)
        self.assertIn("P=4: 0 of 1 sizes from 64 MiB at 1.1 times", goals)

    def test_the_document_has_both(self):
        beside = recorded()
        beside["cell"] = beside["cell"] | {"background": 0.2}
        beside["systems"]["dense"]["turns"][0]["background_share"] = 0.199
        refused = recorded() | {"name": "full", "refused": "the goodput is 80 %", "systems": {}}
        text = tables.document(CELLS, [recorded()], [], [beside, refused], self.MEASURED)
        self.assertIn("`full` was refused by the gate", text)
        self.assertIn("background 20% | dense | 0.312", text)
        self.assertIn("19.9%", text)
        self.assertIn("| P=2, 64 MiB | 40 ms | 80 ms | 80 ms | 64 ms |", text)
        self.assertIn("P=2, 64 MiB: the bytes alone, neither summed nor checked, would be 1.25 times gloo's rate", text)
        for block in re.findall(r"(?:^\|.*\|\n)+", text, re.M):
            self.assertEqual(len({line.count("|") for line in block.splitlines()}), 1, block)

    def test_what_all_ranks_send(self):
        self.assertEqual(dense_path.payload(100, 2), 200)
        self.assertEqual(dense_path.payload(100, 4), 600)
        self.assertGreaterEqual(dense_path.repeats(1 << 30, 4), 2)


@unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed")
class Calculated(unittest.TestCase):
    POINT = {"workers": 2, "speedup": 1.9, "ratio": 1.01}
    RESULTS = {
        "benchmarks.performance.crossover": {
            "profile": "vgg19-22k", "layer": "fc6", "outputs": 4096, "inputs": 25088, "workers": [2, 4],
            "rates_bits_per_second": [1e9], "batches": [{"rows": 32, "schemes": [[[2, "sfb"], [4, "kv"]]]}]},
        "benchmarks.simulate.curves": {
            "rate": "10Gbit", "curves": [{"profile": "vgg19-22k", "system": "poseidon", "points": [POINT]}]},
        "benchmarks.simulate.settings": {"points": [
            {"profile": "vgg19-22k", "workers": 2, "rate": "1x", "ratio": 1.004, "median_seconds": 1.0,
             "predicted_seconds": 1.01},
            {"profile": "vgg19-22k", "workers": 4, "rate": 10e9, "ratio": 1.031, "median_seconds": 1.0,
             "predicted_seconds": 0.9}]}}

    def test_settings_beyond_the_goal_stand_out(self):
        text = tables.unscaled_part(self.RESULTS["benchmarks.simulate.settings"])
        self.assertIn("1 of 2 settings within 1.02 T\\*", text)
        self.assertIn("Predicted within 5 %: 1 of 2", text)
        self.assertRegex(text, r"vgg19-22k, P=4, 10G: 1\.031 T\\\*, \d\.\d{3} of the predicted step")
        self.assertNotIn("P=2, 1x: 1.004", text)
        self.assertIn("| vgg19-22k | 1.004 | **1.031** |", text)
        self.assertIn("P=2, 1x | P=4, 10G", text)

    def test_results_are_plotted_and_copied(self):
        for module, document in self.RESULTS.items():
            with self.subTest(module), tempfile.TemporaryDirectory() as folder:
                source, copied, plot = (pathlib.Path(folder) / name for name in ("a.json", "b.json", "c.svg"))
                source.write_text(json.dumps(document))
                done = subprocess.run([sys.executable, "-B", "-m", module, "--from", source, "--json", copied,
                                       "--plot", plot], cwd=machine.ROOT, capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(json.loads(copied.read_text()), document)
                self.assertIn("vgg19-22k", plot.read_text())

    def test_results_that_are_not_there_are_one_sentence(self):
        for module in self.RESULTS:
            done = subprocess.run([sys.executable, "-B", "-m", module, "--from", "nowhere.json"], cwd=machine.ROOT,
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"^\w+: .*nowhere\.json'\n$")


class Comparison(unittest.TestCase):
    def test_noise_is_not_a_regression(self):
        self.assertEqual(list(figures.worse(recorded(), recorded())), [])
        self.assertEqual(list(figures.worse(recorded(), slower(recorded(), "poseidon", 1.015))), [])
        self.assertEqual(list(figures.worse(recorded(), slower(recorded(), "poseidon", 0.9))), [])

    def test_a_slower_system_is_found(self):
        found = list(figures.worse(recorded(), slower(recorded(), "poseidon", 1.05)))
        self.assertTrue(any(line.startswith("poseidon / T* was 1.015") for line in found), found)
        self.assertFalse([line for line in found if line.startswith("dense")], found)

    def test_a_machine_that_is_slower_as_a_whole_is_not_slower_than_ddp(self):
        result = recorded()
        for system in result["systems"]:
            result = slower(result, system, 1.2)
        self.assertFalse([line for line in figures.worse(recorded(), result) if "DDP" in line])

    def test_a_larger_recorded_spread_allows_more(self):
        noisy = recorded()
        noisy["systems"]["poseidon"]["turns"] = [turn([0.28, 0.302, 0.33], 0.298)]
        self.assertEqual(list(figures.worse(noisy, slower(recorded(), "poseidon", 1.04))), [])

    def test_what_is_missing_is_said(self):
        without = recorded()
        del without["systems"]["dense"]
        self.assertTrue(any("missing" in line for line in figures.worse(recorded(), without)))


REFUSED = recorded() | {"date": "2026-01-03", "refused": "the goodput is 80 %", "systems": {}}


class Record(unittest.TestCase):
    """What is recorded of a result says the same as the result."""

    def setUp(self):
        waited = recorded() | {"name": "resnet-50-p8-2x"}
        for one in waited["systems"]["dense"]["turns"]:
            one |= {"core_wait_seconds_per_step": 0.125, "machine_stolen": 0.25, "window_stolen": 0.011, "machine_busy": 0.5}
        waited["systems"]["dense"]["thrown_away"] = [0.5]
        waited["systems"]["dear"] = {"turns": [], "failed": "rank 1 ended with 1"}
        waited["cell"] = waited["cell"] | {"workers": 8, "rate": "2x"}
        self.results = [recorded(), waited, REFUSED | {"name": "mlp-p2-1G"}]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "recorded.json"
            path.write_text(record.text_of(record.merged({}, self.results)))
            self.read = record.read(path)
            path.write_text(record.text_of(self.read))
            self.assertEqual(record.read(path), self.read, "written again it is the same")

    def test_the_pages_are_the_same(self):
        read = [self.read[result["name"]] for result in self.results]
        self.assertEqual(tables.document(grid.smoke(), read, []), tables.document(grid.smoke(), self.results, []))
        self.assertEqual(tables.every_cell(read), tables.every_cell(self.results))
        self.assertIn("| 1 | 40 | 1 | passed |", tables.gate_table(read))
        self.assertIn("| resnet-50, P=8, 5.07 Gbit/s (2x ridge) | dense | 0.050 | 8% | 5.0% | 1.1% |", tables.cpu_table(read[:2]))

    def test_no_step_is_kept(self):
        text = record.text_of(self.read)
        self.assertNotIn("0.304", text)
        self.assertEqual(text.count('"a CPU"'), 1, "what cells were measured with is written once")

    def test_a_refusal_replaces_no_result(self):
        self.assertEqual(record.merged(self.read, [REFUSED])[REFUSED["name"]], self.read[REFUSED["name"]])
        self.assertEqual(record.merged({}, [REFUSED])[REFUSED["name"]]["refused"], "the goodput is 80 %")
        faster = slower(recorded(), "poseidon", 0.5)
        self.assertEqual(record.merged(self.read, [faster])[faster["name"]], record.compact(faster))

    def test_the_tree_has_what_make_bench_compares(self):
        found = record.read(command.DOCS / command.RECORD)
        for cell in grid.smoke():
            self.assertEqual(set(figures.ratios_of(found[cell.name])),
                             {"poseidon / T*", "poseidon / DDP", "dense / T*", "dense / DDP"})

    def test_the_pages_in_the_tree_are_those_of_the_record(self):
        docs = command.DOCS
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for path in docs.glob("*.json"):
                (folder / path.name).write_text(path.read_text())
            drawn = {plot: caption for page in (docs.parent / "performance.md", docs / "details.md")
                     for caption, plot in re.findall(r"^!\[(.*)\]\((?:performance/)?(.*)\)$", page.read_text(), re.M)}
            with (unittest.mock.patch.object(calculated, "draw", return_value=list(drawn.items())),
                  unittest.mock.patch.object(plots, "draw", return_value=[]),
                  unittest.mock.patch.object(plots, "timeline"), unittest.mock.patch.object(command, "ROOT", folder),
                  contextlib.redirect_stdout(io.StringIO())):
                command.render(grid.quick(), grid.beside(), folder, folder / "page.md", folder / "aside")
            self.assertEqual((folder / "page.md").read_text(), (docs.parent / "performance.md").read_text())
            self.assertEqual((folder / "details.md").read_text(), (docs / "details.md").read_text())
        self.assertEqual({path.name for path in docs.glob("*.svg")} - {"tensorflow.svg"}, set(drawn), "no picture that no page shows")


    def test_the_readme_says_the_recorded_numbers(self):
        found = list(record.read(command.DOCS / command.RECORD).values())
        results = [result for result in found if result["name"] in {cell.name for cell in grid.quick()}]
        bounds = pages.ratios(results, pages.to_bound("poseidon"))
        words = (command.ROOT / "README.md").read_text()
        self.assertIn(f"in {sum(ratio <= tables.GOAL for ratio, _ in bounds)} of {len(bounds)} settings", words)
        self.assertIn(pages.range_words(pages.ratios(results, pages.over_ours("ddp"))).split(" times")[0] + " times as long", words)
        rows = {row["setting"]: row["ratio"][0] for row in json.loads((command.DOCS / "torch.json").read_text())["rows"]}
        for net in ("BERT-style, 128 tokens a worker", "LeNet", "ResNet-20"):
            self.assertIn(f"{rows[f'{net}, P=2, 1 Gbit/s']:.2f} ", words)


class Page(unittest.TestCase):
    def parts(self, **more):
        return pages.Parts([recorded()], [], **more)

    def test_it_is_complete_with_and_without_what_is_beside(self):
        summary = {"rows": [{"setting": "LeNet, P=2", "compared": "DDP in Poseidon's steps", "ratio": [0.9, 0.8, 1.0], "goal": 1,
                             "date": "2026-01-03", "commit": "def"}]}
        text = pages.page(self.parts(dense_path=DensePath.MEASURED | {"date": "2026-01-02", "versions": {"poseidon": "abc"}},
                                     torch=summary, unscaled=Calculated.RESULTS["benchmarks.simulate.settings"]),
                          [("speed-up.svg", "Speed-up.")])
        for text in (text, pages.page(self.parts(), []), pages.page(pages.Parts([], []), [])):
            self.assertNotIn("{{", text)
            for block in re.findall(r"(?:^\|.*\|\n)+", text, re.M):
                self.assertEqual(len({line.count("|") for line in block.splitlines()}), 1, block)

    def test_every_table_says_its_commit_and_its_day(self):
        text = pages.page(self.parts(), [])
        self.assertIn("1 of 12 settings of the quick grid, at commit `abc`, 2026-01-02", text)
        self.assertIn("| 0.298 | 0.302 | 1.015 | - | 0.450 | 1.49 | - |", text)
        self.assertIn("Nothing else of the full grid is recorded.", text)
        self.assertIn("The rest of the full grid was measured earlier, commit `abc`, 2026-01-02: 1 of 1 settings within 1.02",
                      pages.page(self.parts(earlier=[recorded()]), []))
        older = recorded() | {"date": "2025-12-31", "versions": {"poseidon": "aaa"}}
        self.assertEqual(pages.recorded_at(recorded(), older), "2 commits, 2025-12-31 to 2026-01-02")
        self.assertNotIn(pages.MIXED, text)
        self.assertIn(pages.MIXED, pages.page(pages.Parts([recorded(), older], []), []))

    def test_losses_are_said(self):
        self.assertEqual(pages.losses(self.parts()), "Nowhere in what is recorded.")
        late = pages.Parts([slower(recorded(), "poseidon", 1.1)], [], dense_path=DensePath.MEASURED, torch={"rows": [
            {"setting": "LeNet, P=2", "compared": "DDP in Poseidon's steps", "ratio": [0.9, 0.8, 1.0], "goal": 1}]})
        said = pages.losses(late)
        self.assertIn("1 of 1 settings are above 1.02 T\\*, 0 of them with eight workers. The worst: 1.117 (resnet-50, P=4", said)
        self.assertIn("gloo is faster, in parts of Poseidon's time, at P=2, 1 KiB (0.50)", said)
        self.assertIn("DDP in Poseidon's steps: 0.90 [0.80, 1.00] for LeNet, P=2.", said)

    def test_rates_follow_from_payload(self):
        # 64 MiB between two: each sends 64 MiB in 40 ms.
        row = path_row(64 << 20, 0.04, 0.08)
        self.assertAlmostEqual(pages.rate_of_a_worker(row, 2, "poseidon"), 8e-9 * (64 << 20) / 0.04)
        self.assertAlmostEqual(pages.cpu_per_gigabyte(row, 2, "poseidon"), 0.02 / (2 * (64 << 20) / 1e9))


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.docs = pathlib.Path(folder.name) / "raw", pathlib.Path(folder.name) / "docs"
        self.folder.mkdir()
        self.docs.mkdir()
        self.path = self.folder / f"{CELLS[0].name}.json"

    def said(self, call, result):
        """What the call returned and printed where measuring a cell gives that result."""
        with (unittest.mock.patch.object(command, "build"), contextlib.redirect_stdout(io.StringIO()) as output,
              unittest.mock.patch.object(command, "measured", return_value=copy.deepcopy(result))):
            return call(), output.getvalue()

    def compare(self, result, recorded=None):
        self.path.unlink(missing_ok=True)
        fresh = [recorded] if recorded else []
        (self.docs / command.RECORD).write_text(record.text_of(record.merged({}, fresh)))
        return self.said(lambda: command.compare(CELLS, self.docs), result)

    def measure(self, result):
        options = argparse.Namespace(chosen=CELLS, again=False, dense_path=False, training=False, calculated=[])
        return self.said(lambda: command.measure_all(options, self.folder, self.docs), result)[1]

    def refusal(self, *arguments):
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit) as ended:
            command.parse(arguments)
        self.assertEqual(ended.exception.code, 2)
        return said.getvalue().splitlines()[-1]

    def test_a_comparison_of_nothing_is_no_success(self):
        failed = recorded()
        for system in failed["systems"].values():
            system["turns"] = []
        for result, before in ((recorded(), None), (recorded(), REFUSED), (REFUSED, recorded()), (recorded(), failed)):
            status, output = self.compare(result, before)
            self.assertEqual(status, 1, output)
            self.assertIn("nothing was compared, expected at least one cell", output)
            self.assertNotIn("no ratio got worse", output)

    def test_a_comparison_says_what_got_worse(self):
        status, output = self.compare(recorded(), recorded())
        self.assertEqual((status, output.splitlines()[-1]), (0, "no ratio got worse than recorded"))
        self.assertIn("  poseidon / T*: 1.015 (recorded 1.015)\n", output)
        status, output = self.compare(slower(recorded(), "wfbp", 1.2) | {"systems": {}}, recorded())
        self.assertEqual((status, output.splitlines()[-1]), (1, "4 ratios got worse than recorded"))

    def test_options_that_would_be_ignored_are_refused(self):
        self.assertIn("--compare takes no --grid", self.refusal("--compare", "--grid", "full"))
        self.assertIn("--render takes no --only", self.refusal("--render", "--only", "mlp-p2-1G"))
        self.assertIn("the grid smoke has no cell dense-path", self.refusal("--compare", "--only", "dense-path"))
        self.assertEqual(command.parse(["--compare"]).chosen, grid.smoke())
        self.assertEqual(command.parse([]).chosen, grid.quick() + grid.beside())
        self.assertEqual(command.parse(["--render", "--grid", "full"]).cells, grid.full())
        self.assertTrue(command.parse(["--grid", "smoke", "--only", "dense-path"]).dense_path)

    def test_a_refusal_is_written_only_where_nothing_is(self):
        self.measure(REFUSED)
        self.assertEqual(json.loads(self.path.read_text()), REFUSED)
        self.measure(recorded())
        self.assertEqual(json.loads(self.path.read_text()), recorded())
        output = self.measure(REFUSED)
        self.assertEqual(json.loads(self.path.read_text()), recorded())
        self.path.unlink()  # as in a fresh checkout, which has the record alone
        self.measure(REFUSED)
        self.assertEqual(record.read(self.docs / command.RECORD)[CELLS[0].name]["systems"].keys(), recorded()["systems"].keys())
        self.assertIn(f"{CELLS[0].name}: the result of 2026-01-02 is kept, the network was refused: the goodput is 80 %",
                      output)

    def test_a_result_takes_the_place_of_another_in_one_piece(self):
        self.measure(recorded())
        with self.path.open() as before:
            self.measure(slower(recorded(), "dense", 2))
            self.assertEqual(json.load(before), recorded())
        self.assertEqual(list(self.folder.iterdir()), [self.path])


if __name__ == "__main__":
    unittest.main()
