from ottla.api.admin import Admin as Admin
from ottla.api.async_consumer import AsyncConsumer as AsyncConsumer
from ottla.api.async_legacy_consumer import AsyncLegacyConsumer as AsyncLegacyConsumer
from ottla.api.async_producer import AsyncProducer as AsyncProducer
from ottla.api.async_share_consumer import AsyncShareConsumer as AsyncShareConsumer
from ottla.api.asynchronous import AsyncAdmin as AsyncAdmin
from ottla.api.asynchronous import AsyncSimpleConsumer as AsyncSimpleConsumer
from ottla.api.consumer import Consumer as Consumer
from ottla.api.errors import ClientClosed as ClientClosed
from ottla.api.errors import TransactionAborted as TransactionAborted
from ottla.api.errors import UndecodableRecord as UndecodableRecord
from ottla.api.legacy_consumer import LegacyConsumer as LegacyConsumer
from ottla.api.messages import Delivery as Delivery
from ottla.api.messages import Record as Record
from ottla.api.producer import Producer as Producer
from ottla.api.records import ProducerRecord as ProducerRecord
from ottla.api.records import RecordMetadata as RecordMetadata
from ottla.api.share_consumer import Job as Job
from ottla.api.share_consumer import ShareConsumer as ShareConsumer
from ottla.api.simple_consumer import Fetched as Fetched
from ottla.api.simple_consumer import SimpleConsumer as SimpleConsumer
from ottla.api.streams import Streams as Streams
from ottla.api.topic_filter import TopicFilter as TopicFilter
from ottla.client.librdkafka.consumer import ConsumedRecord as ConsumedRecord
from ottla.client.librdkafka.transactional_producer import ProducerFenced as ProducerFenced
from ottla.common.errors import ErrorCode as ErrorCode
from ottla.common.errors import KafkaError as KafkaError

__version__: str

def build_revision() -> str | None: ...
def full_version() -> str: ...
