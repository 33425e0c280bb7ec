"""Proves that dashboards and alert rules name only metrics that exist, and that promtool agrees.

Whether they answer with data is proved by tests/e2e/test_prometheus.py.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from penstock.observe.families import FAMILIES
from tests.dashboards import DASHBOARDS, FOLDER, Dashboard, content
from tests.documents import ROOT

PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = PROMETHEUS / "penstock.rules.yml"
NAMES = {name for family in FAMILIES.values() for name in family.series()}
LABELS = {label for family in FAMILIES.values() for label in family.labels}
# What Prometheus adds by itself.
ADDED_LABELS = {"instance", "job", "le"}
NAMED = re.compile(r"\b(?:penstock|process|python)_\w+")
MATCHED_LABEL = re.compile(r"(\w+)=~?\"")


def queries_of(dashboard: Dashboard) -> list[str]:
    return [
        *dashboard.variables.values(),
        *(query for panel in dashboard.panels for query in panel.queries.values()),
    ]


def alerts() -> dict[str, dict[str, object]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.name)
def test_the_file_of_a_dashboard_is_what_follows_from_its_declaration(
    dashboard: Dashboard,
) -> None:
    assert (FOLDER / f"{dashboard.name}.json").read_text() == content(dashboard), "run `make docs`"


def test_there_is_no_other_dashboard() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == {each.name for each in DASHBOARDS}


def test_every_query_names_only_what_exists() -> None:
    queries = [query for each in DASHBOARDS for query in queries_of(each)]
    queries += [str(rule["expr"]) for rule in alerts().values()]
    for query in queries:
        named = NAMED.findall(query)
        assert named, query
        assert set(named) <= NAMES, query
        assert set(MATCHED_LABEL.findall(query)) <= LABELS | ADDED_LABELS, query


def test_variables_of_queries_are_declared() -> None:
    for dashboard in DASHBOARDS:
        used = set(re.findall(r"\$(?!__)(\w+)", "".join(queries_of(dashboard))))
        assert used == dashboard.variables.keys(), dashboard.name


def test_every_alert_has_a_runbook_and_is_in_the_how_to() -> None:
    page = (ROOT / "docs/how-to/watch-a-cluster.md").read_text()
    for name, rule in alerts().items():
        annotations = rule["annotations"]
        assert isinstance(annotations, dict)
        assert (ROOT / annotations["runbook"]).is_file()
        assert f"`{name}`" in page


def test_every_alert_has_a_unit_test() -> None:
    tests = yaml.safe_load((PROMETHEUS / "penstock.tests.yml").read_text())["tests"]
    fired = {
        one["alertname"] for test in tests for one in test["alert_rule_test"] if one["exp_alerts"]
    }
    assert fired == alerts().keys()


def promtool(*arguments: str | Path) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("needs promtool, of the Debian package prometheus")
    outcome = subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=60)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_promtool_takes_the_rules_and_their_tests() -> None:
    promtool("check", "rules", RULES)
    promtool("test", "rules", PROMETHEUS / "penstock.tests.yml")
