"""InitProducerId: an id and epoch for an idempotent or transactional producer."""

from penstock.protocol.kafka.api_keys import ApiKey
from penstock.protocol.kafka.schema import boolean, int16, int32, int64, message, string


@message(ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+")
class InitProducerIdRequest:
    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


@message(ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+")
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
