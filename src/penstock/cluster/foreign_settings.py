"""Settings of Kafka's brokers that have no meaning here, so that tools may set and read them.

All of them may be changed while a broker runs, as on Kafka; those about security and listeners
only for one broker at a time. Passwords are not among them: what nobody uses need not be kept.
"""

from penstock.cluster.settings import LONG_MAX, ConfigType, Setting

BOOLEAN, STRING, LIST, CLASS = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.LIST,
    ConfigType.CLASS,
)
INT, LONG, SHORT, DOUBLE = ConfigType.INT, ConfigType.LONG, ConfigType.SHORT, ConfigType.DOUBLE

_JMX = "org.apache.kafka.common.metrics.JmxReporter"
_PRINCIPALS = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"

# Kafka takes these only with the prefix of a listener, since they hold the keys of one.
PER_LISTENER = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)

_OF_ALL = (
    ("background.threads", INT, 10, "Threads for background work."),
    ("config.providers", LIST, "", "Where values of settings may come from."),
    ("follower.fetch.last.tiered.offset.enable", BOOLEAN, "false", "About tiered storage."),
    ("group.consumer.assignment.interval.ms", INT, 1_000, "About groups of KIP-848."),
    ("group.coordinator.cached.buffer.max.bytes", INT, 1_048_588, "Memory of the coordinator."),
    ("group.share.assignment.interval.ms", INT, 1_000, "About share groups."),
    ("group.streams.assignment.interval.ms", INT, 1_000, "About groups of Kafka Streams."),
    ("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, "How full the key map may get."),
    ("log.cleaner.io.buffer.size", INT, 524_288, "The buffers of compaction."),
    (
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        1.7976931348623157e308,
        "A limit of its speed.",
    ),
    ("max.connection.creation.rate", INT, 2_147_483_647, "New connections per second."),
    ("max.connections.per.ip.overrides", STRING, "", "Limits for single addresses."),
    ("metric.reporters", LIST, _JMX, "Classes that report metrics."),
    ("num.recovery.threads.per.data.dir", INT, 2, "Threads that recover logs at start."),
    ("num.replica.fetchers", INT, 1, "Threads that replicate from another broker."),
    ("remote.fetch.max.wait.ms", INT, 500, "About tiered storage."),
    ("remote.list.offsets.request.timeout.ms", LONG, 30_000, "About tiered storage."),
    ("remote.log.index.file.cache.total.size.bytes", LONG, 1_073_741_824, "About tiered storage."),
    ("remote.log.manager.copier.thread.pool.size", INT, 10, "About tiered storage."),
    ("remote.log.manager.copy.max.bytes.per.second", LONG, LONG_MAX, "About tiered storage."),
    ("remote.log.manager.expiration.thread.pool.size", INT, 10, "About tiered storage."),
    ("remote.log.manager.fetch.max.bytes.per.second", LONG, LONG_MAX, "About tiered storage."),
    ("remote.log.manager.follower.thread.pool.size", INT, 2, "About tiered storage."),
    ("remote.log.reader.threads", INT, 10, "About tiered storage."),
    ("share.coordinator.cached.buffer.max.bytes", INT, 1_048_588, "Memory of a coordinator."),
    ("transaction.partition.verification.enable", BOOLEAN, "true", "About transactions."),
)

_OF_ONE = (
    ("principal.builder.class", CLASS, _PRINCIPALS, "Who a connection belongs to."),
    ("sasl.enabled.mechanisms", LIST, "GSSAPI", "How clients may authenticate."),
    ("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", "About Kerberos."),
    ("sasl.kerberos.min.time.before.relogin", LONG, 60_000, "About Kerberos."),
    ("sasl.kerberos.principal.to.local.rules", LIST, "DEFAULT", "About Kerberos."),
    ("sasl.kerberos.service.name", STRING, None, "About Kerberos."),
    ("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, "About Kerberos."),
    ("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, "About Kerberos."),
    ("sasl.login.refresh.buffer.seconds", SHORT, 300, "About OAuth."),
    ("sasl.login.refresh.min.period.seconds", SHORT, 60, "About OAuth."),
    ("sasl.login.refresh.window.factor", DOUBLE, 0.8, "About OAuth."),
    ("sasl.login.refresh.window.jitter", DOUBLE, 0.05, "About OAuth."),
    ("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", "How brokers authenticate."),
    ("ssl.cipher.suites", LIST, "", "About TLS."),
    ("ssl.client.auth", STRING, "none", "About TLS."),
    ("ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", "About TLS."),
    ("ssl.endpoint.identification.algorithm", STRING, "https", "About TLS."),
    ("ssl.engine.factory.class", CLASS, None, "About TLS."),
    ("ssl.keymanager.algorithm", STRING, "SunX509", "About TLS."),
    ("ssl.protocol", STRING, "TLSv1.3", "About TLS."),
    ("ssl.provider", STRING, None, "About TLS."),
    ("ssl.secure.random.implementation", STRING, None, "About TLS."),
    ("ssl.trustmanager.algorithm", STRING, "PKIX", "About TLS."),
)


def _kept(
    name: str,
    kind: ConfigType,
    default: str | float | None,
    documentation: str,
    *,
    is_per_broker: bool,
) -> Setting:
    return Setting(
        name=name,
        type=kind,
        default=None if default is None else str(default),
        documentation=f"{documentation} Kept, but without effect on this broker.",
        has_effect=False,
        is_dynamic=True,
        is_per_broker=is_per_broker,
    )


FOREIGN_SETTINGS = (
    *(_kept(*row, is_per_broker=False) for row in _OF_ALL),
    *(_kept(*row, is_per_broker=True) for row in _OF_ONE),
)
