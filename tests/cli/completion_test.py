"""What is generated from the command line's tables: completion in real shells, and a manual page that
groff takes without a warning."""

import json
import os
import re
import shutil
import subprocess
import unittest

from program import DONE, Folder, kvbench

BASH = """
source "$1"
COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
_kvbench
printf '%s\\n' "${COMPREPLY[@]}"
"""

# An interactive zsh on a terminal of its own; the words offered come back between the marks. A prompt says that
# zsh reads keys: what is typed before, the terminal itself would echo, and a tab would complete nothing.
ZSH = r"""
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PS1=PROMPT"> "; autoload -Uz compinit && compinit -u -D; source '"$1"
zpty -w shell "compadd() { builtin compadd -O found \"\$@\"; print -rl -- mark:\$^found; \
  builtin compadd \"\$@\" }; bindkey '^I' complete-word; zstyle ':completion:*' list-prompt ''"
zpty -w shell 'print ready:$((1 + 1))'
zpty -r -m shell line '*ready:2*PROMPT> *'
zpty -w -n shell "${2}"$'\t'
zpty -w shell $'\x15print done:$((1 + 2))'
zpty -r -m shell line '*done:3*'
print -r -- "$line"
zpty -d shell
"""


def commands():
    text = kvbench("--help").stdout
    return re.findall(r"^  ([a-z]+) ", text[text.index("Subcommands:"):text.index("Exit codes")],
                      re.MULTILINE)


def options_of(command):
    """Those of its help, and where a sweep is given by options those of `list parameters`."""
    named = set(re.findall(r"^  (?:-[a-z],)?(--[A-Za-z0-9_-]+)", kvbench(command, "--help").stdout,
                           re.MULTILINE))
    if "--algorithm" in named:
        listed = kvbench("list", "parameters", "--json").stdout
        named |= {"--" + parameter["name"] for parameter in json.loads(listed)}
    return named


class Generated(Folder):
    def generated(self, *arguments):
        done = kvbench(*arguments)
        self.assertEqual((done.returncode, done.stderr), (DONE, ""))
        path = self.folder / "generated"
        path.write_text(done.stdout)
        return path

    def bash(self, *words):
        path = self.generated("completion", "bash")
        done = subprocess.run(["bash", "--norc", "-c", BASH, "-", path, "kvbench", *words],
                              capture_output=True, text=True, check=True)
        self.assertEqual(done.stderr, "")
        return set(done.stdout.split())

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

    def test_zsh_is_told_short_options(self):
        text = self.generated("completion", "zsh").read_text()
        for command in commands():
            part = text[text.index(f"\n    {command})\n"):]
            part = part[:part.index(" ;;")]
            for short, name in re.findall(r"^  (-[a-z]),(--[a-z-]+)", kvbench(command, "--help").stdout,
                                          re.MULTILINE):
                self.assertIn(f"'({short} {name})'{{{short},{name}}}'[", part)
        self.assertIn("'(-o --out)'{-o,--out}'[", text)

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh_completes(self):
        path = self.generated("completion", "zsh")
        for typed, offered in (("kvbench comp", {"compare", "completion"}),
                               ("kvbench run --dev", {"--device"}),
                               ("kvbench run --device ", {"cpu", "cuda", "auto"}),
                               ("kvbench synth --dtype ", {"float16", "bfloat16", "float32", "float64"}),
                               ("kvbench schema ", {"sweep", "results", "bounds"})):
            done = subprocess.run(["zsh", "-f", "-c", ZSH, "-", path, typed], timeout=60,
                                  capture_output=True, text=True, check=True)
            found = set(re.findall(r"mark:([\w-]+)", done.stdout))
            self.assertLessEqual(offered, found, done.stdout)

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish_completes(self):
        path = self.generated("completion", "fish")
        (self.folder / "some.json").write_text("{}")
        environment = {**os.environ, "HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder),
                       "XDG_DATA_HOME": str(self.folder)}

        def offered(typed):
            done = subprocess.run(["fish", "-N", "-c", "source $argv[1]; complete -C $argv[2]", path, typed],
                                  cwd=self.folder, env=environment, timeout=60, capture_output=True,
                                  text=True, check=True)
            self.assertEqual(done.stderr, "", typed)
            return {line.split("\t")[0] for line in done.stdout.splitlines()}

        self.assertEqual(offered("kvbench "), set(commands()))
        self.assertEqual(offered("kvbench --"), {"--help", "--version"})
        for command in commands():
            named = options_of(command)
            self.assertEqual(offered(f"kvbench {command} --"), named, command)
        self.assertEqual(offered("kvbench run --device "), {"cpu", "cuda", "auto"})
        self.assertEqual(offered("kvbench synth --dtype "), {"float16", "bfloat16", "float32", "float64"})
        self.assertEqual(offered("kvbench synth --dtype b"), {"bfloat16"})
        self.assertEqual(offered("kvbench synth --tokens "), set())  # a number, and no file's name
        self.assertEqual(offered("kvbench schema "), {"sweep", "results", "bounds"})
        for typed in ("kvbench run --config s", "kvbench run -c s", "kvbench inspect s"):
            self.assertEqual(offered(typed), {"some.json"}, typed)
        # A value may be called like a command.
        self.assertEqual(offered("kvbench inspect run --dev"), set())

    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_the_manual_is_a_page_without_warnings(self):
        path = self.generated("manual")
        done = subprocess.run(["groff", "-man", "-ww", "-z", path], capture_output=True, text=True,
                              check=True)
        self.assertEqual(done.stderr, "")
        page = subprocess.run(["groff", "-man", "-Tascii", "-P-cbou", path], capture_output=True,
                              text=True, check=True).stdout
        self.assertTrue(page.startswith("KVBENCH(1)"))
        for command in commands():
            self.assertRegex(page, rf"(?m)^   {command}$")
            for option in self.bash(command, "--"):
                self.assertRegex(page, rf"(?m)^ +(-\w, )?{option}\b", command)


if __name__ == "__main__":
    unittest.main()
