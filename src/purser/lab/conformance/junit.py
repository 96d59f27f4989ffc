"""A report as JUnit XML, the form that every CI shows."""

from pathlib import Path
from xml.etree import ElementTree as xml

from purser.lab.conformance.check import CheckOutcome, CheckVerdict
from purser.lab.conformance.run import Report

SUITE = "device-plugin"


def write(report: Report, path: Path) -> None:
    """Write it. Raises OSError."""
    suites = xml.Element("testsuites")
    suite = xml.SubElement(
        suites,
        "testsuite",
        name=f"{SUITE} {report.resource}" if report.resource else SUITE,
        tests=str(len(report.verdicts)),
        failures=str(report.count(CheckOutcome.FAILED)),
        errors="0",
        skipped=str(report.count(CheckOutcome.SKIPPED)),
        time=f"{report.seconds:.3f}",
    )
    suite.extend(_case(verdict) for verdict in report.verdicts)
    xml.indent(suites)
    path.write_bytes(xml.tostring(suites, encoding="utf-8", xml_declaration=True))


def _case(verdict: CheckVerdict) -> xml.Element:
    check = verdict.check
    case = xml.Element("testcase", classname=f"{SUITE}.{check.group}", name=check.id, time=f"{verdict.seconds:.3f}")
    if verdict.outcome is CheckOutcome.FAILED:
        failure = xml.SubElement(case, "failure", message=verdict.reason, type="CheckFailed")
        failure.text = f"{check.sentence} {verdict.reason}"
    elif verdict.outcome is CheckOutcome.SKIPPED:
        xml.SubElement(case, "skipped", message=verdict.reason)
    return case
