"""Streams over HTTP: what a browser is sent, and that one that reads slowly holds up nobody."""

import asyncio
from contextlib import suppress

import msgspec
import pytest
from tests import waiting
from tests.unit.top.states import cluster, gpu, node

from purser import telemetry
from purser.web import streaming

from .pages import Browser, Source, served, unread


async def read(response, browser, until):
    async with waiting.limit():
        while not until(browser):
            browser.read((await response.content.readuntil(b"\n\n")).decode())


async def test_a_browser_sees_a_change():
    source, browser = Source(), Browser()
    async with served(source) as (client, _), client.get("/events") as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        await read(response, browser, lambda b: b.nodes)
        assert (set(browser.nodes), browser.status["gpus"]) == ({"n", "other"}, 3)
        source.show(cluster((node("n", gpu(held=900)),)))
        await read(response, browser, lambda b: b.status["gpus"] == 1)
        assert set(browser.nodes) == {"n"}


async def test_the_numbers_come_before_the_tiles():
    browser = Browser()
    async with served() as (client, _), client.get("/events") as response:
        await read(response, browser, lambda b: b.status)
        assert (browser.nodes, browser.status["gpus"]) == ({}, 3)


async def test_a_page_without_tiles_hears_that_something_has_changed():
    source, browser = Source(), Browser()
    async with served(source) as (client, _), client.get("/events?changes") as response:
        await read(response, browser, lambda b: b.status)
        assert (browser.changes, browser.nodes) == (1, {})
        source.show(problem="away")
        await read(response, browser, lambda b: b.status["problem"])
        assert browser.changes == 2


async def test_streams_are_compressed_and_readable_at_once():
    headers = {"Accept-Encoding": "gzip"}
    async with (
        served() as (client, _),
        client.get("/events", headers=headers) as response,
    ):
        assert response.headers["Content-Encoding"] == "gzip"
        browser = Browser()
        await read(response, browser, lambda b: b.nodes)
        assert set(browser.nodes) == {"n", "other"}


async def test_a_silent_stream_gives_signs_of_life(monkeypatch):
    monkeypatch.setattr(streaming, "KEEPALIVE_PERIOD_S", 0.01)
    async with served() as (client, _), client.get("/events?changes") as response:
        await read(response, Browser(), lambda b: b.status)
        async with waiting.limit():
            assert await response.content.readuntil(b"\n\n") == b":\n\n"


async def test_where_there_is_no_place_the_oldest_page_hears_so_and_the_new_one_has_it(monkeypatch):
    monkeypatch.setattr(streaming, "MAX_STREAMS", 2)
    async with served() as (client, _), client.get("/events") as first, client.get("/events"):
        await read(first, Browser(), lambda b: b.nodes)
        async with client.get("/events") as third:
            await read(third, Browser(), lambda b: b.nodes)
            end = await first.content.read()
            assert b"event: displaced" in end and b"Too many pages are open" in end
            await shows(client, "purser_web_streams 2.0")


async def test_pages_that_do_not_read_keep_nobody_out(monkeypatch):
    monkeypatch.setattr(streaming, "MAX_STREAMS", 16)
    async with served() as (client, feed), unread(client._base_url.port, 64), client.get("/events") as response:
        await read(response, Browser(), lambda b: b.nodes)
        assert feed.watchers == 16


@pytest.fixture
def opened(monkeypatch):
    """Set once a stream has begun: one that is cut off soon is not always seen in the metrics."""
    event, follow = asyncio.Event(), streaming._follow

    async def noted(*args):
        event.set()
        await follow(*args)

    monkeypatch.setattr(streaming, "_follow", noted)
    return event


async def test_a_reader_that_does_not_read_is_cut_off_and_holds_up_nobody(monkeypatch, opened):
    monkeypatch.setattr(streaming, "SEND_TIMEOUT_S", 0.2)
    monkeypatch.setattr(streaming, "KEEPALIVE_PERIOD_S", 0.2)  # by which the server sees that the other client has gone
    device = msgspec.structs.replace(gpu(), model="x" * 20_000)
    large = cluster(tuple(node(f"n-{number}", device) for number in range(1000)))
    async with served(Source(large)) as (client, _):
        port = client._base_url.port
        _, stuck = await asyncio.open_connection("127.0.0.1", port)
        stuck.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with waiting.limit():
            await opened.wait()
        async with client.get("/events?changes") as response:
            await read(response, Browser(), lambda b: b.status)
        await shows(client, "purser_web_streams 0.0")
        stuck.close()


async def slowly(reader):
    while data := await reader.read(4096):
        yield data
        await asyncio.sleep(0.01)


async def read_slowly(reader):
    with suppress(ConnectionError):
        async for _ in slowly(reader):
            pass


async def shows(client, metric):
    """Wait until the metrics have it."""
    text = ""
    async with waiting.limit():
        while metric not in text:
            async with client.get("/metrics") as response:
                text = await response.text()
            await asyncio.sleep(0.02)


async def test_streams_end_with_the_server():
    async with served() as (client, feed), client.get("/events") as response:
        await read(response, Browser(), lambda b: b.status)
        feed.end()
        async with waiting.limit():
            await response.content.read()


async def test_who_asks_for_the_head_of_a_stream_opens_none():
    async with served() as (client, feed), client.head("/events") as response:
        assert (response.status, feed.watchers) == (405, 0)


async def test_a_reader_that_reads_all_but_slowly_is_cut_off_too(monkeypatch, opened):
    monkeypatch.setattr(streaming, "SEND_ALL_TIMEOUT_S", 0.3)
    device = msgspec.structs.replace(gpu(), model="x" * 20_000)
    large = cluster(tuple(node(f"n-{number}", device) for number in range(2000)))
    async with served(Source(large)) as (client, _), waiting.limit():
        reader, writer = await asyncio.open_connection("127.0.0.1", client._base_url.port, limit=4096)
        writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await opened.wait()
        reading = asyncio.ensure_future(read_slowly(reader))
        await shows(client, "purser_web_streams 0.0")
        reading.cancel()
        writer.close()


async def test_on_this_machine_all_streams_may_be_of_one_person(monkeypatch):
    monkeypatch.setattr(streaming, "MAX_STREAMS_OF_A_VIEWER", 1)
    async with served() as (client, _), client.get("/events"), client.get("/events") as second:
        assert second.status == 200


async def test_a_server_that_ends_does_not_wait_for_clients_that_do_not_read(monkeypatch):
    monkeypatch.setattr(telemetry, "_SHUTDOWN_S", 3600.0)
    device = msgspec.structs.replace(gpu(), model="x" * 20_000)
    large = cluster(tuple(node(f"n-{number}", device) for number in range(1000)))
    async with waiting.limit():
        async with served(Source(large)) as (client, _):
            _, writer = await asyncio.open_connection("127.0.0.1", client._base_url.port, limit=4096)
            writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await shows(client, "purser_web_streams 1.0")
        writer.close()
