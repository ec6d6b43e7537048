import type { Pod } from './kubernetes-api';
import { reasonOf, statusOf, wasOutOfMemory } from './pod-status';

const waiting = (reason: string, message = ''): Pod => ({
  status: { containerStatuses: [{ state: { waiting: { reason, message } } }] } as Pod['status'] & object,
});

describe('what a pod is doing', () => {
  it.each([
    ['ErrImageNeverPull', 'not present', 'broken', 'image_pull'],
    ['InvalidImageName', 'bad name', 'broken', 'image_pull'],
    ['CreateContainerConfigError', 'no such secret', 'broken', 'starting'],
    ['ErrImagePull', 'rpc error: not found', 'broken', 'image_pull'],
    ['ImagePullBackOff', 'Back-off pulling: pull access denied', 'broken', 'image_pull'],
    ['ErrImagePull', 'connection reset by peer', 'waiting', 'image_pull'],
    ['ContainerCreating', '', 'waiting', 'starting'],
  ])('%s (%s) is %s for %s', (reason, message, kind, why) => {
    expect(statusOf(waiting(reason, message))).toMatchObject({ kind, reason: why });
  });

  it('says what the container waits for that goes before its own', () => {
    const { initContainerStatuses, ...rest } = {
      containerStatuses: [{ state: { waiting: { reason: 'PodInitializing' } } }],
      initContainerStatuses: [{ state: { waiting: { reason: 'ErrImageNeverPull', message: 'not present' } } }],
    };
    const of = (more: object) => statusOf({ status: { ...rest, ...more } as Pod['status'] & object });
    expect(of({ initContainerStatuses })).toMatchObject({ kind: 'broken', message: 'not present' });
    const over = [{ state: { terminated: { exitCode: 0 } } }];
    expect(of({ initContainerStatuses: over })).toMatchObject({ kind: 'waiting', reason: 'starting' });
  });

  it('tells why no node takes it', () => {
    const conditions = [{ type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message: '0/3 nodes' }];
    expect(statusOf({ status: { conditions } })).toEqual({
      kind: 'waiting',
      reason: 'unschedulable',
      message: '0/3 nodes',
    });
  });

  it('tells a container that memory ended from one that ended otherwise', () => {
    const ended = (reason: string) =>
      ({ status: { containerStatuses: [{ lastState: { terminated: { reason } } }] } }) as unknown as Pod;
    expect([wasOutOfMemory(ended('OOMKilled')), wasOutOfMemory(ended('Error')), wasOutOfMemory(undefined)]).toEqual([true, false, false]); // prettier-ignore
  });

  it('is leaving when it is deleted, evicted or over, whatever its container does', () => {
    const running = { podIP: '127.0.0.2', containerStatuses: [{ state: { running: {} } }] } as Pod['status'] & object;
    expect(statusOf({ status: running })).toEqual({ kind: 'running', ip: '127.0.0.2' });
    expect(statusOf({ metadata: { deletionTimestamp: new Date() }, status: running }).kind).toBe('leaving');
    expect(statusOf({ status: { ...running, phase: 'Failed', message: 'The node was low on memory' } })).toEqual({
      kind: 'leaving',
      message: 'The node was low on memory',
    });
  });

  it('says by its newest event whether it waits for image or volume', () => {
    const event = (reason: string, at: number) => ({
      reason,
      message: reason.toLowerCase(),
      lastTimestamp: new Date(at),
      metadata: {},
      involvedObject: {},
    });
    expect(reasonOf([event('Pulling', 2), event('Scheduled', 1)])).toEqual({
      reason: 'image_pull',
      message: 'pulling',
    });
    expect(reasonOf([event('Pulling', 2), event('FailedMount', 3)])?.reason).toBe('volume_attach');
    expect(reasonOf([event('Started', 1)])).toBeUndefined();
  });
});
