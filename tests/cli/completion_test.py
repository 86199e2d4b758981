"""Completion that is generated from the command line's tables, in a real bash."""

import json
import re
import subprocess
import unittest

from program import BAD_INPUT, DONE, Folder, commands, kvbench

BASH = """
source "$1"
COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
_kvbench
printf '%s\\n' "${COMPREPLY[@]}"
"""


def options_of(command):
    """Those of its help, and where a sweep is given by options those of `list parameters`."""
    named = set(re.findall(r"^  (?:-[a-z],)?(--[A-Za-z0-9_-]+)", kvbench(command, "--help").stdout,
                           re.MULTILINE))
    if "--algorithm" in named:
        listed = kvbench("list", "parameters", "--json").stdout
        named |= {"--" + parameter["name"] for parameter in json.loads(listed)}
    return named


class Completion(Folder):
    def bash(self, *words):
        done = kvbench("completion")
        self.assertEqual((done.returncode, done.stderr), (DONE, ""))
        path = self.folder / "generated"
        path.write_text(done.stdout)
        done = subprocess.run(["bash", "--norc", "-c", BASH, "-", path, "kvbench", *words],
                              capture_output=True, text=True, check=True)
        self.assertEqual(done.stderr, "")
        return set(done.stdout.split())

    def test_bash_may_be_named_and_no_other_shell(self):
        self.assertEqual(kvbench("completion", "bash").stdout, kvbench("completion").stdout)
        for words in (["tcsh"], ["bash", "bash"]):
            done = kvbench("completion", *words)
            self.assertEqual((done.returncode, done.stdout), (BAD_INPUT, ""), words)
            self.assertIn(words[-1], done.stderr)

    def test_bash_completes_commands(self):
        self.assertEqual(self.bash(""), set(commands()) | {"--help", "--version"})
        self.assertEqual(self.bash("comp"), {"compare", "completion"})

    def test_bash_completes_every_option_of_every_command(self):
        for command in commands():
            named = options_of(command)
            self.assertIn("--help", named)
            self.assertEqual(self.bash(command, "--"), named, command)

    def test_bash_completes_fixed_words_and_leaves_files_to_the_shell(self):
        self.assertEqual(self.bash("run", "--device", ""), {"cpu", "cuda", "auto"})
        self.assertEqual(self.bash("run", "--quiet", "--dev"), {"--device"})
        self.assertEqual(self.bash("list", "a"), {"algorithms"})
        self.assertEqual(self.bash("synth", ""), {"gaussian", "clusterable", "focused",
                                                  "heavy_hitters", "rope", "adversarial"})
        self.assertEqual(self.bash("synth", "--dtype", ""), {"float16", "bfloat16", "float32", "float64"})
        self.assertEqual(self.bash("run", "--config", ""), set())
        self.assertEqual(self.bash("inspect", ""), set())


if __name__ == "__main__":
    unittest.main()
