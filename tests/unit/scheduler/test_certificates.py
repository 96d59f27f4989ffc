import asyncio
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from purser.kube.errors import KubeError
from purser.pki import KeyPair
from purser.scheduler.certificates import (
    AUTHORITY_LIFETIME,
    CA_SETTLING_TIME,
    SERVING_LIFETIME,
    Material,
    check,
    expires_at,
    make_authority,
    make_serving,
    renewed,
)
from purser.scheduler.certificates_keeper import (
    GIVEN_FILES,
    VALIDITY_CHECK_PERIOD_S,
    CertificateKeeper,
    FolderStore,
    MemoryStore,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("purser-webhook.purser-system.svc", "127.0.0.1", "::1")
DAY = timedelta(days=1)


class HandClock:
    def __init__(self, now):
        self.time = now

    def now(self):
        return self.time

    def monotonic(self):
        return self.time.timestamp()

    async def sleep(self, seconds):
        await asyncio.Event().wait()


def trusts(bundle: bytes, serving: KeyPair, now: datetime) -> bool:
    certificate = x509.load_pem_x509_certificate(serving.certificate)
    for authority in x509.load_pem_x509_certificates(bundle):
        try:
            certificate.verify_directly_issued_by(authority)
        except Exception:
            continue
        if authority.not_valid_before_utc <= now <= authority.not_valid_after_utc:
            return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc
    return False


def test_the_first_material_is_a_ca_and_a_certificate_for_all_names():
    material = renewed(None, NAMES, NOW)
    check(material)
    assert len(material.authorities) == 1
    assert trusts(material.ca_bundle, material.serving, NOW)
    serving = x509.load_pem_x509_certificate(material.serving.certificate)
    names = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [NAMES[0]]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]


def test_nothing_is_made_while_all_is_well():
    material = renewed(None, NAMES, NOW)
    assert renewed(material, NAMES, NOW + 30 * DAY) == material
    assert renewed(material, NAMES[:1], NOW) == material


def test_a_certificate_is_renewed_before_it_ends_and_for_new_names():
    material = renewed(None, NAMES, NOW)
    later = renewed(material, NAMES, NOW + SERVING_LIFETIME - 29 * DAY)
    assert later.authorities == material.authorities
    assert expires_at(later.serving) > expires_at(material.serving)
    assert renewed(material, (*NAMES, "other.svc"), NOW).serving != material.serving


@pytest.mark.gate
def test_over_years_everybody_who_has_yesterdays_bundle_trusts_todays_certificate():
    now, material, authorities = NOW, renewed(None, NAMES, NOW), set()
    bundle = material.ca_bundle
    for _ in range(1500):
        now += DAY
        material = renewed(material, NAMES, now)
        assert trusts(bundle, material.serving, now)
        bundle = material.ca_bundle
        authorities |= set(material.authorities)
        assert len(material.authorities) <= 2
    assert len(authorities) >= 3


def test_a_new_ca_is_announced_before_it_signs():
    material = renewed(None, NAMES, NOW)
    due = NOW + AUTHORITY_LIFETIME - 179 * DAY
    announced = renewed(material, NAMES, due)
    old, new = announced.authorities
    assert old == material.authorities[0]
    assert not trusts(new.certificate, announced.serving, due)
    settled = renewed(announced, NAMES, due + CA_SETTLING_TIME)
    assert trusts(new.certificate, settled.serving, due + CA_SETTLING_TIME)
    assert settled.authorities == (old, new)


def test_material_whose_keys_do_not_fit_is_noticed():
    one, two = make_authority(NOW), make_authority(NOW)
    serving = make_serving(one, NAMES, NOW)
    for bad in (
        Material((KeyPair(one.certificate, two.key),), serving),
        Material((one,), KeyPair(serving.certificate, one.key)),
        Material((KeyPair(b"nonsense", one.key),), serving),
    ):
        with pytest.raises(ValueError):
            check(bad)


def test_keys_do_not_appear_in_logs():
    assert "PRIVATE" not in repr(renewed(None, NAMES, NOW))


async def test_replicas_share_what_one_of_them_made():
    store, clock = MemoryStore(), HandClock(NOW)
    keepers = [CertificateKeeper(store, NAMES, clock) for _ in range(3)]
    await asyncio.gather(*(keeper.refresh() for keeper in keepers))
    assert len({keeper.ca_bundle for keeper in keepers}) == 1
    assert all(keeper.is_valid for keeper in keepers)


def given(folder, authority, serving):
    for name, content in zip(GIVEN_FILES, (serving.certificate, serving.key, authority.certificate), strict=True):
        (folder / name).write_bytes(content)


async def test_a_certificate_of_others_is_served_and_loaded_again_never_renewed(tmp_path):
    authority = make_authority(NOW)
    first, second = (make_serving(authority, NAMES, NOW) for _ in range(2))
    clock = HandClock(NOW)
    keeper = CertificateKeeper(FolderStore(tmp_path), NAMES, clock)
    given(tmp_path, authority, first)
    await keeper.refresh()
    assert keeper.is_valid
    assert trusts(keeper.ca_bundle, first, NOW)
    changes = []
    keeper.on_change(lambda: changes.append(keeper.ca_bundle))
    clock.time += SERVING_LIFETIME + DAY
    await keeper.refresh()
    assert (keeper.is_valid, changes) == (False, [])
    given(tmp_path, authority, make_serving(authority, NAMES, clock.time))
    await keeper.refresh()
    assert keeper.is_valid
    given(tmp_path, authority, KeyPair(second.certificate, first.key))
    with pytest.raises(KubeError, match=r"cannot load tls\.crt, tls\.key, ca\.crt from "):
        await keeper.refresh()


async def test_who_loses_a_race_takes_the_winners():
    store, clock = MemoryStore(), HandClock(NOW)
    winner, loser = CertificateKeeper(store, NAMES, clock), CertificateKeeper(store, NAMES, clock)
    save = store.save

    async def save_late(material, version):
        store.save = save
        await winner.refresh()
        await save(material, version)

    store.save = save_late
    await loser.refresh()
    assert loser.ca_bundle == winner.ca_bundle != b""


async def test_an_expired_certificate_is_not_valid_and_a_refresh_heals_it():
    clock = HandClock(NOW)
    keeper = CertificateKeeper(MemoryStore(), NAMES, clock)
    assert not keeper.is_valid
    assert keeper.ca_bundle == b""
    changes = []
    keeper.on_change(lambda: changes.append(keeper.ca_bundle))
    await keeper.refresh()
    clock.time += SERVING_LIFETIME + DAY
    assert not keeper.is_valid
    await keeper.refresh()
    assert keeper.is_valid
    await keeper.refresh()
    assert len(changes) == 2


@pytest.mark.parametrize("days", [60, 89, 120, 365, 600, 1000])
def test_a_clock_that_jumps_forward_and_back_leaves_a_usable_certificate(days):
    """And it stays so from then on: nothing that was made ahead of time is kept, or gets in the way later."""
    material = renewed(None, NAMES, NOW)
    for now in (NOW + days * DAY, NOW, NOW + 2 * DAY, NOW - days * DAY, NOW + 3 * DAY):
        material = renewed(material, NAMES, now)
        assert trusts(material.ca_bundle, material.serving, now)
        assert renewed(material, NAMES, now) == material
        assert len(material.authorities) <= 2


def test_what_an_earlier_version_made_ahead_of_time_is_made_again():
    """Its certificates began ten minutes before they were made, and it never looked at that."""
    old = renewed(None, NAMES, NOW + 200 * DAY)
    assert not trusts(old.ca_bundle, old.serving, NOW)
    healed = renewed(old, NAMES, NOW)
    assert trusts(healed.ca_bundle, healed.serving, NOW)


@pytest.mark.parametrize("ahead", [60, 90])
async def test_replicas_whose_clocks_differ_agree_on_one_certificate(ahead):
    """Neither renews what the other has just renewed: the webhook's CA would change at each turn."""
    store, clocks = MemoryStore(), (HandClock(NOW), HandClock(NOW + ahead * DAY))
    keepers = [CertificateKeeper(store, NAMES, clock) for clock in clocks]
    for keeper in (*keepers, *keepers):
        await keeper.refresh()
    settled = (await store.load()).version
    for _ in range(3):
        for keeper in keepers:
            await keeper.refresh()
            assert keeper.is_valid
    assert (await store.load()).version == settled
    clocks[1].time = NOW
    for keeper in keepers:
        await keeper.refresh()
        assert keeper.is_valid
        assert trusts(keeper.ca_bundle, (await store.load()).material.serving, NOW)


async def test_a_certificate_that_the_clock_left_behind_is_replaced_before_the_next_refresh():
    class Jumping(HandClock):
        slept = 0.0

        async def sleep(self, seconds):
            await asyncio.sleep(0)
            self.slept += seconds
            if self.slept == 2 * VALIDITY_CHECK_PERIOD_S:
                self.time = NOW

    renewed_again = asyncio.Event()
    clock = Jumping(NOW + 400 * DAY)
    keeper = CertificateKeeper(MemoryStore(), NAMES, clock)
    changed: list[float] = []

    def note():
        changed.append(clock.slept)
        if len(changed) == 2:
            renewed_again.set()

    keeper.on_change(note)
    running = asyncio.create_task(keeper.run())
    await asyncio.wait_for(renewed_again.wait(), 5)
    running.cancel()
    assert keeper.is_valid
    assert changed == [0.0, 2 * VALIDITY_CHECK_PERIOD_S]


async def test_run_tries_again_while_the_store_is_away():
    class Away(MemoryStore):
        async def load(self):
            if tries.append(1) or len(tries) < 3:
                raise KubeError("away")
            return await super().load()

    class Quick(HandClock):
        async def sleep(self, seconds):
            if len(tries) >= 3:
                await asyncio.Event().wait()

    tries: list[int] = []
    keeper = CertificateKeeper(Away(), NAMES, Quick(NOW))
    running = asyncio.create_task(keeper.run())
    await asyncio.wait_for(keeper.served(), 5)
    running.cancel()
    assert len(tries) == 3


async def test_a_given_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path):
    authority = make_authority(NOW)
    serving = make_serving(authority, NAMES, NOW)
    key = serialization.load_pem_private_key(serving.key, None)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    locked = key.private_bytes(*form, serialization.BestAvailableEncryption(b"secret"))
    given(tmp_path, authority, KeyPair(serving.certificate, locked))
    with pytest.raises(KubeError, match=r"tls\.key is password-protected: store the key unencrypted"):
        await FolderStore(tmp_path).load()


async def presented(port):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the test's clock runs ahead of the real one
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return x509.load_der_x509_certificate(certificate)


async def test_a_renewed_certificate_is_served_without_a_restart():
    async def nothing(reader, writer):
        writer.close()

    clock = HandClock(datetime.now(UTC))
    keeper = CertificateKeeper(MemoryStore(), NAMES, clock)
    await keeper.refresh()
    async with await asyncio.start_server(nothing, "127.0.0.1", 0, ssl=keeper.new_context()) as server:
        port = server.sockets[0].getsockname()[1]
        first = await presented(port)
        assert await presented(port) == first
        clock.time += SERVING_LIFETIME - 29 * DAY
        await keeper.refresh()
        second = await presented(port)
    assert second.not_valid_after_utc > first.not_valid_after_utc
    (authority,) = x509.load_pem_x509_certificates(keeper.ca_bundle)
    second.verify_directly_issued_by(authority)
