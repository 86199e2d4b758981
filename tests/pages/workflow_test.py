"""The workflows for other repositories (configs/ci/kvbench.yml, its twin for GitLab, and action.yml):
their commands, as they stand in the files, in a repository that is laid out as they say; and the pages'
rule for a baseline that is red."""

import atexit
import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

import sandbox  # noqa: F401  skips where Python lacks a package
import yaml

SOURCE = Path(os.environ["KVBENCH_SOURCE"])
BUILD = Path(os.environ["KVBENCH_BUILD"])
WORKFLOW = yaml.safe_load((SOURCE / "configs/ci/kvbench.yml").read_text(encoding="utf-8"))
STEPS = {step["name"]: step for step in WORKFLOW["jobs"]["errors"]["steps"] if "run" in step}


def step(folder, name, **environment):
    return subprocess.run(["bash", "-e", "-o", "pipefail", "-c", STEPS[name]["run"]], cwd=folder,
                          capture_output=True, text=True, check=False,
                          env={**os.environ, **WORKFLOW["env"], **environment})


@functools.cache
def replayed():
    """A repository with kvbench in kvbench/ and, in errors/, what the workflow's replay gave."""
    folder = Path(tempfile.mkdtemp(prefix="kvbench-workflow-"))
    atexit.register(shutil.rmtree, folder)
    kvbench = folder / "kvbench"
    shutil.copytree(SOURCE / "configs", kvbench / "configs")
    (kvbench / "data").symlink_to(SOURCE / "data")
    (kvbench / "build-portable/bin").mkdir(parents=True)
    (kvbench / "build-portable/bin/kvbench").symlink_to(BUILD / "bin/kvbench")
    done = step(folder, "Replay")
    assert done.returncode == 0, done.stderr
    return folder


class Workflow(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = replayed()

    def test_the_steps_are_known_and_in_order(self):
        self.assertEqual(list(STEPS), ["Install git", "Install what kvbench needs", "Build", "Replay",
                                       "Check"])

    def test_what_it_builds_exists(self):
        words = STEPS["Build"]["run"].split()
        presets = json.loads((SOURCE / "CMakePresets.json").read_text(encoding="utf-8"))
        for kind in ("configurePresets", "buildPresets"):
            self.assertIn(words[words.index("--preset") + 1],
                          [preset["name"] for preset in presets[kind]])
        portable, = (preset for preset in presets["configurePresets"] if preset["name"] == "portable")
        self.assertEqual(portable["binaryDir"], "${sourceDir}/build-portable")
        self.assertEqual(STEPS["Install what kvbench needs"]["run"], "kvbench/bootstrap.sh deps")

    def test_it_is_green(self):
        done = step(self.folder, "Check")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"(\d+) of \1 bounds held")

    def test_a_changed_number_turns_it_red_and_a_baseline_written_on_purpose_green(self):
        bounds = self.folder / "kv/bounds.json"
        bounds.parent.mkdir()
        bounds.write_text(json.dumps({"schema_version": 1, "bounds": [
            {"name": "frozen", "where": {"algorithm": "window"}, "baseline": "frozen.json",
             "metric": "errors.relative_l2.mean", "relative_tolerance": 1e-6}]}))
        write = [BUILD / "bin/kvbench", "check", "--results", self.folder / "errors/results.json",
                 "--bounds", bounds, "--write-baselines"]
        subprocess.run(write, check=True, capture_output=True)
        frozen = bounds.parent / "frozen.json"
        document = json.loads(frozen.read_text())
        document["cells"][0]["errors"]["relative_l2"]["mean"] *= 1.01
        frozen.write_text(json.dumps(document))
        done = step(self.folder, "Check", BOUNDS=str(bounds))
        self.assertEqual(done.returncode, 4)
        self.assertIn("off the baseline by 0.0099", done.stdout)
        subprocess.run(write, check=True, capture_output=True)
        self.assertEqual(step(self.folder, "Check", BOUNDS=str(bounds)).returncode, 0)


def impossible(folder):
    """Bounds of which one is violated."""
    path = folder / "impossible.json"
    path.write_text(json.dumps({"schema_version": 1, "bounds": [
        {"name": "none", "where": {"algorithm": "window"}, "metric": "errors.relative_l2.mean",
         "at_most": 1e-12}]}))
    return path


class Gitlab(unittest.TestCase):
    def test_its_commands_are_those_of_the_workflow(self):
        job = yaml.safe_load((SOURCE / "configs/ci/gitlab-ci.yml").read_text(encoding="utf-8"))["errors"]
        build = f"(cd {WORKFLOW['jobs']['errors']['steps'][4]['working-directory']} && {STEPS['Build']['run']})"
        self.assertEqual(job["script"], [STEPS["Install what kvbench needs"]["run"], build,
                                         STEPS["Replay"]["run"], STEPS["Check"]["run"]])
        self.assertEqual({name: job["variables"][name] for name in WORKFLOW["env"]}, WORKFLOW["env"])

    def test_its_report_of_tests_is_that_of_the_check(self):
        job = yaml.safe_load((SOURCE / "configs/ci/gitlab-ci.yml").read_text(encoding="utf-8"))["errors"]
        folder = replayed()
        for bounds, code, failures in ((WORKFLOW["env"]["BOUNDS"], 0, 0), (impossible(folder), 4, 1)):
            script, = job["after_script"]
            done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=False,
                                  env={**os.environ, "BOUNDS": str(bounds)})
            self.assertEqual(done.returncode, code, done.stderr)
            report = ElementTree.parse(folder / job["artifacts"]["reports"]["junit"]).getroot()
            self.assertEqual(int(report.get("failures")), failures)
            self.assertEqual(len(list(report.iter("failure"))), failures)


class Action(unittest.TestCase):
    """action.yml, with its inputs put in as a runner does."""

    @classmethod
    def setUpClass(cls):
        cls.folder = replayed()
        cls.action = yaml.safe_load((SOURCE / "action.yml").read_text(encoding="utf-8"))
        cls.steps = {each["name"]: each for each in cls.action["runs"]["steps"]}

    def run_step(self, name, **inputs):
        values = {f"inputs.{key}": value for key, value in inputs.items()}
        command = re.sub(r"\$\{\{ ([\w.]+) \}\}", lambda found: values[found[1]],
                         self.steps[name]["run"])
        return subprocess.run(["bash", "-e", "-o", "pipefail", "-c", command], cwd=self.folder,
                              capture_output=True, text=True, check=False,
                              env={**os.environ, "GITHUB_ACTION_PATH": str(self.folder / "kvbench"),
                                   "GITHUB_OUTPUT": str(self.folder / "outputs"),
                                   "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md")})

    def test_the_program_of_other_sources_is_not_taken(self):
        """The key of the cache is of what is compiled, wherever it lies, and of nothing else."""
        kvbench = self.folder / "kvbench"
        for name in ("CMakeLists.txt", "version.txt", "lib/a b.cpp", "apps/c.cpp", "cuda/d.cu"):
            (kvbench / name).parent.mkdir(exist_ok=True)
            (kvbench / name).write_text("x")

        def key():
            (self.folder / "outputs").unlink(missing_ok=True)
            done = self.run_step("Say which sources these are")
            self.assertEqual(done.returncode, 0, done.stderr)
            lines = (self.folder / "outputs").read_text().splitlines()
            self.assertEqual(lines[1], f"bin={kvbench}/build-portable/bin")
            return re.fullmatch(r"key=([0-9a-f]{64})", lines[0])[1]

        first = key()
        (kvbench / "new.md").write_text("x")
        self.assertEqual(key(), first)
        (kvbench / "lib/a b.cpp").write_text("y")
        self.assertNotEqual(key(), first)
        cached = self.steps["Look for a program of the same sources"]["with"]
        self.assertEqual(cached, {"path": "${{ steps.sources.outputs.bin }}",
                                  "key": "kvbench-${{ steps.sources.outputs.key }}"})

    def test_it_names_no_path_of_the_host(self):
        """github.action_path is that of the host in a job within a container, as README's is."""
        self.assertNotIn("{{ github.", (SOURCE / "action.yml").read_text(encoding="utf-8"))

    def test_it_builds_as_the_workflow_does(self):
        self.assertEqual(self.steps["Build"]["run"], f'cd "$GITHUB_ACTION_PATH"\n{STEPS["Build"]["run"]}\n')
        self.assertEqual(self.action["inputs"]["out"]["default"], "errors")
        for each in self.steps.values():
            self.assertTrue("uses" in each or each["shell"] == "bash")

    def test_it_replays_and_checks_and_fails_where_a_bound_does(self):
        given = {"sweep": WORKFLOW["env"]["SWEEP"], "bounds": WORKFLOW["env"]["BOUNDS"], "out": "by action"}
        for name in ("Replay", "Check"):
            done = self.run_step(name, **given)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        bounds = str(impossible(self.folder))
        done = self.run_step("Check", **{**given, "bounds": bounds})
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        done = self.run_step("Summarise", **{**given, "bounds": bounds})
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        summary = (self.folder / "summary.md").read_text()
        self.assertTrue(summary.startswith("### kvbench check: 0 of 1 bounds held\n"), summary)
        self.assertEqual(self.run_step("Summarise", **{**given, "out": "nowhere"}).returncode, 0)


if __name__ == "__main__":
    unittest.main()
