"""A client of gRPC for tests of the way out: one call of each kind to the service of h2origin.py, then 50 at a time.

    python3 grpc_calls.py HOST      prints what it was answered; needs grpclib"""

import asyncio
import ssl
import sys

import grpclib.client
import grpclib.const
import grpclib.exceptions

GRPC = 9644  # port
KINDS = grpclib.const.Cardinality


class Raw:
    """Messages are bytes, as they are."""
    __content_subtype__ = "proto"

    @staticmethod
    def encode(message, _):
        return message

    @staticmethod
    def decode(data, _):
        return data


def call(channel, name, kind):
    return channel.request(f"/cay.Test/{name}", kind, bytes, bytes, timeout=30)


async def unary(channel, text):
    async with call(channel, "Unary", KINDS.UNARY_UNARY) as stream:
        await stream.send_message(text, end=True)
        return await stream.recv_message()


async def server_stream(channel):
    async with call(channel, "Stream", KINDS.UNARY_STREAM) as stream:
        await stream.send_message(b"500", end=True)
        print(sum([int(message) async for message in stream]))
        await stream.recv_trailing_metadata()
        print(stream.trailing_metadata["x-count"], stream.trailing_metadata["x-seen"])


async def bidi(channel):
    """Each answer comes before the next message is sent."""
    async with call(channel, "Bidi", KINDS.STREAM_STREAM) as stream:
        for n in range(20):
            await stream.send_message(b"%d abc" % n)
            assert await stream.recv_message() == (b"%d abc" % n)[::-1]
        await stream.end()
        assert await stream.recv_message() is None
    print("bidi")


async def main(host):
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    channel = grpclib.client.Channel(host, GRPC, ssl=context, codec=Raw())
    try:
        print((await unary(channel, b"question")).decode())
        await server_stream(channel)
        await bidi(channel)
        answers = await asyncio.gather(*(unary(channel, b"%d" % n) for n in range(50)))
        assert answers == [b"answer to %d" % n for n in range(50)]
    except grpclib.exceptions.GRPCError as e:
        print(e.status, e.message)
    channel.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
