"""Suppliers' lists that are text: CSV, JSON, HTML, SpreadsheetML, YML."""

from __future__ import annotations

from collections.abc import Iterator

from tests.fuzz.lists import check_list
from tests.fuzz.target import SAMPLES, Target

YML = b"""<?xml version="1.0"?><yml_catalog date="2026-01-01"><shop><offers>
<offer id="A-1"><Code>A-1</Code><Name>Bolt</Name><Price>10.50</Price><Stock>5</Stock>
<param name="Size">5</param></offer></offers></shop></yml_catalog>"""
SHEET = b"""<?xml version="1.0"?><Workbook xmlns="urn:schemas-microsoft-com:office:spreadsheet"
 xmlns:ss="urn:schemas-microsoft-com:office:spreadsheet"><Worksheet ss:Name="S"><Table><Row>
<Cell><Data ss:Type="String">Code</Data></Cell><Cell><Data ss:Type="String">Name</Data></Cell>
<Cell><Data ss:Type="String">Price</Data></Cell><Cell><Data ss:Type="String">Stock</Data></Cell></Row>
<Row ss:Index="3"><Cell><Data ss:Type="String">A-1</Data></Cell>
<Cell ss:MergeAcross="0"><Data ss:Type="String">Bolt</Data></Cell>
<Cell><Data ss:Type="Number">10.5</Data></Cell><Cell><Data ss:Type="Number">5</Data></Cell></Row>
</Table></Worksheet></Workbook>"""
HTML = b"""<html><body><table><tr><th>Code<th>Name<th>Price<th>Stock</tr><tr><td>A-1<td colspan=" 1">Bolt
<td>10,50<td rowspan=2>5</tr><tr><td>A-2<td>N&uuml;t &#xD800;<td>3</tr></table></body></html>"""


def seeds() -> Iterator[bytes]:
    """One small list of each format."""
    lists = (
        b"Code;Name;Price;Stock\nA-1;Bolt;10.50;5\nA-2;Nut;3;0\n",
        b'Code,Name,Price,Stock\r\n"A-1","Bo""lt\nM8",10.50,5\r\nA-2,Nut,"3,10",>10\r\n',
        "Code\tName\tPrice\tStock\nА-1\tБолт\t10,50\t5\n".encode("cp1251"),
        "\ufeffCode;Name;Price;Stock\nA-1;Болт;10;5\n".encode("utf-16-le"),
        b'[{"Code":"A-1","Name":"Bolt","Price":10.50,"Stock":5},{"Code":"\\ud800","Name":"x","Price":1e999,"Stock":"1"}]',
        b'{"a":[{"Code":7,"Name":["x",{"y":1}],"Price":"1","Stock":true}],"b":3}',
        YML, SHEET, HTML,
    )  # fmt: skip
    for content in (*lists, (SAMPLES / "tyres.csv").read_bytes()[:1500]):
        yield b"\x00" + content
        yield b"\x05" + content


TARGET = Target(
    check_list,
    seeds,
    words=(
        b"Code", b"Name", b"Price", b"Stock", b"<!DOCTYPE", b"<!ENTITY a 'b'>", b"&a;", b"&#x", b"<offer>",
        b"</offer>",
        b"<offers>", b"<param name=", b"<table>", b"<td>", b"<tr>", b"colspan=", b"rowspan=", b"<script>",
        b"<![CDATA[",
        b"ss:Index=", b"ss:MergeAcross=", b"ss:MergeDown=", b'ss:Type="Number"', b'ss:Type="DateTime"',
        b"ss:Formula=",
        b"\\ud83d", b'{"', b"[[", b'":', b"1e400", b'""', b"\r", b"NaN", b"\xff\xfe", b"encoding='utf-16'",
        b"10+",
        b"\x00", b"1_0", b"-->", b"<!--",
    ),
    most_bytes=8 * 1024,
)  # fmt: skip
