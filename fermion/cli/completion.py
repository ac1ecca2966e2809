"""`fermion completion`: the script with which a shell completes commands and options."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator

from fermion.cli.console import Console

HELP = "print a script for bash or zsh that completes commands and options"
_SCRIPT = """\
_fermion() {{
    local command="" word words=""
    local previous="${{COMP_WORDS[COMP_CWORD-1]}}" current="${{COMP_WORDS[COMP_CWORD]}}"
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$command $word" in
            {commands}) command="$command $word" ;;
        esac
    done
    case "$command $previous" in
{values}
        *)
            case "$command" in
{words}
            esac
            ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _fermion fermion
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("shell", choices=("bash", "zsh"), help="the shell that reads the script")
    parser.epilog = 'For bash: eval "$(fermion completion bash)" in ~/.bashrc; zsh likewise.'


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print the script."""
    if arguments.shell == "zsh":
        console.print("autoload -U +X compinit bashcompinit && compinit && bashcompinit")
    for line in _script(arguments.program).splitlines():
        console.print(line)
    return 0


def _script(program: argparse.ArgumentParser) -> str:
    parsers = list(_parsers("", program))
    commands = "|".join(f'"{path}"' for path, _ in parsers if path)
    values, words = [], []
    for path, parser in parsers:
        own: list[str] = []
        for action in parser._actions:
            listed = [str(each) for each in action.choices or ()]
            own += action.option_strings or listed
            if action.option_strings and action.nargs != 0:
                patterns = "|".join(f'"{path} {each}"' for each in action.option_strings)
                values.append(f"        {patterns}) words={_quoted(listed)} ;;")
        words.append(f'                "{path}") words={_quoted(own)} ;;')
    return _SCRIPT.format(commands=commands, values="\n".join(values), words="\n".join(words))


def _parsers(
    path: str, parser: argparse.ArgumentParser
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """A parser and those of its commands, each with the words that lead to it."""
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, each in action.choices.items():
                yield from _parsers(f"{path} {name}", each)


def _quoted(words: list[str]) -> str:
    return shlex.quote(" ".join(words))
