"""``privopt policy PROBLEM.toml``: which answers a policy hides from each other, and how well."""

from pathlib import Path

import click

from privopt.command.exit_codes import DONE, handle_errors
from privopt.command.terminal import print_result
from privopt.declare import load_problem
from privopt.interfaces.notions import factor


@click.command()
@click.argument("problem", metavar="PROBLEM.toml", type=click.Path(path_type=Path))
@handle_errors
def policy(problem):
    """Say which answers a policy hides from each other, and how well."""
    from policy_dp.mechanism import PolicyProblem, PolicyResponse

    instance = PolicyResponse().load(load_problem(PolicyProblem, problem), problem.name)
    answers, epsilon = instance.declared.question.answers, instance.declared.privacy.epsilon
    for i, row in enumerate(instance.distances):
        for k, steps in enumerate(row[:i]):
            statement = (
                "not hidden"
                if steps is None
                else f"{steps} step{'s' * (steps > 1)}: at most {factor(float(epsilon * steps))} as likely"
            )
            print_result(f"{answers[k]} / {answers[i]}: {statement}")
    return DONE
