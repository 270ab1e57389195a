"""The checks on names and sizes find what they are for."""

from __future__ import annotations

from tests.house.conftest import MakeRepository
from tools.house.figures import figures, importers, undocumented
from tools.house.names import LONG_LINES, duplicate_classes, duplicate_modules, long_modules, named_products


def test_two_public_classes_of_one_name_are_found(make: MakeRepository) -> None:
    repository = make({"xds/a.py": "class Gate: ...\n", "xds/b.py": "class Gate: ...\nclass _Own: ...\n"})
    assert [finding.path for finding in duplicate_classes(repository, [])] == ["xds/a.py"]
    assert not list(duplicate_classes(repository, ["Gate"]))


def test_private_classes_and_those_of_tests_may_share_a_name(make: MakeRepository) -> None:
    files = {"xds/a.py": "class _Gate: ...\n", "xds/b.py": "class _Gate: ...\n", "tests/c.py": "class Gate: ...\n"}
    assert not list(duplicate_classes(make({**files, "xds/d.py": "class Gate: ...\n"}), []))


def test_a_module_name_occurs_twice_only_with_a_reason(make: MakeRepository) -> None:
    repository = make({"xds/codec/node.py": "", "xds/model/node.py": ""})
    assert [finding.path for finding in duplicate_modules(repository, {})] == ["xds/codec/node.py"]
    assert not list(duplicate_modules(repository, {"node": "each layer has its own view"}))
    assert list(duplicate_modules(repository, {"node": ""}))


def test_the_api_and_the_command_line_may_repeat_names_of_modules_that_they_present(make: MakeRepository) -> None:
    files = dict.fromkeys(("xds/push/groups.py", "xds/admin/routes/groups.py", "xds/cli/commands/groups.py"), "")
    assert not list(duplicate_modules(make(files), {}))


def test_the_modules_of_a_feature_are_named_after_what_they_are_to_it(make: MakeRepository) -> None:
    files = (
        "xds/one/feature.py",
        "xds/one/routes.py",
        "xds/two/feature.py",
        "xds/two/routes.py",
        "xds/mesh/core/lower/routes.py",
    )
    assert not list(duplicate_modules(make(dict.fromkeys(files, "")), {}))


def test_the_kernel_names_a_product_of_a_feature_only_with_a_reason(make: MakeRepository) -> None:
    files = (
        "xds/push/a.py",
        "xds/mesh/feature.py",
        "xds/mesh/routes/a.py",
        "xds/cli/a.py",
        "xds/feature.py",
        "tests/a.py",
    )
    repository = make(dict.fromkeys(files, "# one\n# Consul's\n"))
    found = [(each.path, each.line) for each in named_products(repository, {})]
    assert found == [("xds/feature.py", 2), ("xds/push/a.py", 2)]
    assert not list(named_products(repository, {"xds/push/a.py": "why", "xds/feature.py": "why"}))


def test_the_head_of_a_long_module_says_why_it_is_one_idea(make: MakeRepository) -> None:
    head, rest = (
        '"""The states of a stream.\n\nOne idea: each is read with its neighbours.\n"""',
        "\n" * (LONG_LINES + 1),
    )
    files = {
        "xds/short.py": "\n" * LONG_LINES,
        "xds/reasoned.py": head + rest,
        "xds/unreasoned.py": head.replace("One idea: each", "Each") + rest,
        "xds/headless.py": rest,
        "tests/long.py": rest,
    }
    assert {finding.path for finding in long_modules(make(files))} == {"xds/unreasoned.py", "xds/headless.py"}


def test_figures_count_importers_and_missing_docstrings(make: MakeRepository) -> None:
    repository = make({
        "xds/a.py": "def plain(): ...\n",
        "xds/b.py": "from xds.a import plain\n\nclass Told:\n    '''Documented.'''\n",
        "xds/c.py": "from xds import a\nimport xds.b\n",
    })  # fmt: skip
    assert importers(repository) == {"xds/a.py": {"xds/b.py", "xds/c.py"}, "xds/b.py": {"xds/c.py"}}
    counted = figures(repository)
    assert (counted["modules with one importer"], counted["public definitions without a docstring"]) == (1, 1)


def test_a_method_that_a_base_class_documents_needs_no_docstring(make: MakeRepository) -> None:
    repository = make({
        "xds/a.py": "class Store:\n    'A store.'\n    def get(self):\n        'Get.'\n    def put(self): ...\n",
        "xds/b.py": "from xds.a import Store\nclass Disk(Store):\n    'Disk.'\n    def get(self): ...\n"
        "    def put(self): ...\n",
        "xds/c.py": "from other import Store\nclass Other(Store):\n    'Of theirs.'\n    def get(self): ...\n",
    })  # fmt: skip
    places = [(each.path, each.line, each.subject) for each in undocumented(repository)]
    assert places == [("xds/a.py", 5, "put"), ("xds/b.py", 5, "put"), ("xds/c.py", 4, "get")]
