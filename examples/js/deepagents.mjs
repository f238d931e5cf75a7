// A deep agent whose computer is a sandbox: it writes a script, runs it, and the sandbox is stopped.
//
//   npm install @langchain/daytona@0.1 deepagents@1.14 langchain @langchain/core
//   eval "$(cay env)"
//   node deepagents.mjs
//
// MODEL names a real model ("anthropic:claude-sonnet-4-5", with its package and key). Without it a scripted one answers, so
// that this runs without a network.
import { AIMessage } from '@langchain/core/messages'
import { fakeModel } from '@langchain/core/testing'
import { DaytonaSandbox } from '@langchain/daytona'
import { createDeepAgent } from 'deepagents'

const script = 'print(sum(n * n for n in range(10)))\n'
const scripted = () => fakeModel()
  .respondWithTools([{ name: 'write_file', args: { file_path: '/home/daytona/sum.py', content: script }, id: 'call1' }])
  .respondWithTools([{ name: 'execute', args: { command: 'python3 /home/daytona/sum.py' }, id: 'call2' }])
  .respond(new AIMessage('The script has run.'))

const backend = await DaytonaSandbox.create({ language: 'python' })
try {
  const agent = createDeepAgent({
    model: process.env.MODEL || scripted(),
    systemPrompt: 'You are a Python coding assistant with sandbox access.',
    backend,
  })
  const { messages } = await agent.invoke({ messages: [{ role: 'user', content: 'Run a small python script' }] })
  for (const message of messages) if (message.content) console.log(`${message.getType()}: ${message.text}`)
  await backend.stop()
} finally {
  await backend.close()
}
