"""`fermion completion`: the script with which a shell completes commands and options."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator

from fermion.cli.console import Console

HELP = "print a script for bash, zsh or fish that completes commands and options"
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
_FISH_SCRIPT = """\
function __fermion_command --description 'whether the line names a command'
    set -l words (commandline -opc)
    set -l command ""
    for word in $words[2..-1]
        switch "$command $word"
            case {commands}
                set command "$command $word"
        end
    end
    test "$command" = "$argv[1]"
end
complete -c fermion -e
{lines}
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "shell", choices=("bash", "zsh", "fish"), help="the shell that reads the script"
    )
    parser.epilog = (
        'For bash: eval "$(fermion completion bash)" in ~/.bashrc; zsh likewise. '
        "For fish: fermion completion fish > ~/.config/fish/completions/fermion.fish"
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print the script."""
    if arguments.shell == "zsh":
        console.print("autoload -U +X compinit bashcompinit && compinit && bashcompinit")
    script = _fish_script if arguments.shell == "fish" else _script
    for line in script(arguments.program).splitlines():
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


def _fish_script(program: argparse.ArgumentParser) -> str:
    parsers = list(_parsers("", program))
    commands = " ".join(_fish_quoted(path) for path, _ in parsers if path)
    lines = [
        f"complete -c fermion -n {_fish_quoted(f'__fermion_command {_fish_quoted(path)}')} {what}"
        for path, parser in parsers
        for what in _fish_completions(parser)
    ]
    return _FISH_SCRIPT.format(commands=commands, lines="\n".join(lines))


def _fish_completions(parser: argparse.ArgumentParser) -> Iterator[str]:
    """What may follow a command: its own commands, values and options, with their help."""
    for action in parser._actions:
        listed = [str(each) for each in action.choices or ()]
        if isinstance(action, argparse._SubParsersAction):
            for command in action._choices_actions:
                yield f"-a {command.dest} -d {_fish_quoted(command.help or '')}"
        elif not action.option_strings:
            yield from (f"-a {each}" for each in listed)
        else:
            names = [
                f"-{'l' if each.startswith('--') else 's'} {each.lstrip('-')}"
                for each in action.option_strings
            ]
            if action.nargs != 0:
                names.append(f"-x -a {_fish_quoted(' '.join(listed))}" if listed else "-r")
            text = parser._get_formatter()._expand_help(action) if action.help else ""
            yield f"{' '.join(names)} -d {_fish_quoted(text)}"


def _parsers(
    path: str, parser: argparse.ArgumentParser
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """A parser and those of its commands, each with the words that lead to it."""
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, each in action.choices.items():
                yield from _parsers(f"{path} {name}", each)


def _fish_quoted(text: str) -> str:
    """A word of fish, which knows no other escapes between single quotes."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _quoted(words: list[str]) -> str:
    return shlex.quote(" ".join(words))
