"""``typing.get_type_hints`` gives the types of every public class and function.

What a file imports for its annotations alone it has at run time, too: the class itself, or ``Any`` where importing it
would close a circle or load what is loaded late on purpose.
"""

import importlib
import inspect
import typing

from helpers.rooms import modules

MODULES = [name for name in modules() if "templates" not in name and not name.endswith("__main__")]


def own_functions(cls):
    """Public methods and properties that a class itself defines, by name."""
    for name, value in vars(cls).items():
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if not name.startswith("_") and inspect.isfunction(function) and function.__module__ == cls.__module__:
            yield name, function


def resolves(value):
    """None, or why the types are not found."""
    try:
        typing.get_type_hints(value)
    except Exception as error:  # evaluating annotations may raise anything
        return repr(error)
    return None


def unresolved_types(module):
    """Public things whose types are not found: name -> why."""
    reasons_by_name = {}
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(value):
            if all(resolves(base) is None for base in value.__mro__[1:]):  # a base of another library may be at fault
                reasons_by_name[name] = resolves(value)
            reasons_by_name |= {
                f"{name}.{member_name}": resolves(function) for member_name, function in own_functions(value)
            }
        elif inspect.isfunction(value) and value.__globals__ is vars(module):  # not one that a library made of it
            reasons_by_name[name] = resolves(value)
    return {name: reason for name, reason in reasons_by_name.items() if reason}


def test_public_types_are_resolved():
    assert len(MODULES) > 400
    missing = {name: unresolved_types(importlib.import_module(name)) for name in MODULES}
    assert {name: reasons for name, reasons in missing.items() if reasons} == {}
