// An operator on @kubernetes/client-node: a Queue is a ConfigMap and a Deployment of workers. It knows nothing of
// Setpoint; it runs against whatever cluster KUBECONFIG names, and works while it holds a Lease.
import * as k8s from '@kubernetes/client-node';
import { PassThrough } from 'node:stream';

const GROUP = 'work.example.com';
const NAMESPACE = 'default';
const FINALIZER = 'work.example.com/operator';
const LABEL = 'work.example.com/queue';
const ME = process.env.IDENTITY;

const config = new k8s.KubeConfig();
config.loadFromDefault();
const objects = k8s.KubernetesObjectApi.makeApiClient(config);
const custom = config.makeApiClient(k8s.CustomObjectsApi);
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const events = config.makeApiClient(k8s.EventsV1Api);
const leases = config.makeApiClient(k8s.CoordinationV1Api);
const queue = (name) => ({ group: GROUP, version: 'v1', namespace: NAMESPACE, plural: 'queues', name });
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const code = (wanted) => (error) => {
  if (error.code !== wanted) throw error;
  return undefined;
};

// --- a Lease: whoever replaces it at the version that was read leads

async function leading() {
  const name = 'queue-operator';
  const spec = () => ({ holderIdentity: ME, leaseDurationSeconds: 1, renewTime: new k8s.V1MicroTime() });
  const found = await leases.readNamespacedLease({ name, namespace: NAMESPACE }).catch(code(404));
  if (!found) {
    const body = { metadata: { name }, spec: { ...spec(), leaseTransitions: 0 } };
    return leases.createNamespacedLease({ namespace: NAMESPACE, body }).then(() => true, code(409));
  }
  const mine = found.spec.holderIdentity === ME;
  if (!mine && Date.now() - new Date(found.spec.renewTime) < found.spec.leaseDurationSeconds * 1000) return false;
  const transitions = found.spec.leaseTransitions + (mine ? 0 : 1);
  const body = { ...found, spec: { ...spec(), leaseTransitions: transitions } };
  return leases.replaceNamespacedLease({ name, namespace: NAMESPACE, body }).then(() => true, code(409));
}

// --- one Queue, from what is wanted to what is there

function children(wanted) {
  const { name, uid } = wanted.metadata;
  const labels = { [LABEL]: name };
  const owner = { apiVersion: `${GROUP}/v1`, kind: 'Queue', name, uid, controller: true, blockOwnerDeletion: true };
  const metadata = { name, namespace: NAMESPACE, labels, ownerReferences: [owner] };
  const container = { name: 'worker', image: 'busybox', command: ['sleep', 'infinity'] };
  const template = { metadata: { labels }, spec: { containers: [container] } };
  const deployment = { replicas: wanted.spec.workers, selector: { matchLabels: labels }, template };
  return [
    { apiVersion: 'v1', kind: 'ConfigMap', metadata, data: { greeting: wanted.spec.greeting } },
    { apiVersion: 'apps/v1', kind: 'Deployment', metadata, spec: deployment },
  ];
}

async function reconcile(name) {
  const found = queues.get(name, NAMESPACE);
  if (!found) return;
  if (found.metadata.deletionTimestamp) return finish(found);
  if (!found.metadata.finalizers?.includes(FINALIZER)) {
    // The default content type of this call is JSON patch.
    const body = [{ op: 'add', path: '/metadata/finalizers', value: [FINALIZER] }];
    await custom.patchNamespacedCustomObject({ ...queue(name), body });
    await tell(found, 'Adopted', `${ME} looks after it`);
  }
  for (const child of children(found)) {
    await objects.patch(child, undefined, undefined, 'queue-operator', true, k8s.PatchStrategy.ServerSideApply);
  }
  await report(name);
}

async function report(name) {
  const deployment = await apps.readNamespacedDeployment({ name, namespace: NAMESPACE });
  const current = await custom.getNamespacedCustomObjectStatus(queue(name));
  const workers = deployment.status.readyReplicas ?? 0;
  const ready = workers === current.spec.workers && deployment.status.observedGeneration >= deployment.metadata.generation;
  const answer = ready && workers > 0 ? await ask(name, current.spec.greeting) : current.status?.answer;
  const conditions = [{ type: 'Ready', status: ready ? 'True' : 'False', reason: ready ? 'AllRun' : 'Starting' }];
  const status = { workers, answer, conditions, observedGeneration: current.metadata.generation };
  if (JSON.stringify(status) === JSON.stringify(current.status)) return;
  // At the version that was read: a conflict is thrown, and the key comes round again.
  await custom.replaceNamespacedCustomObjectStatus({ ...queue(name), body: { ...current, status } });
}

// Runs a command in a worker, over a WebSocket.
async function ask(name, greeting) {
  const pods = await core.listNamespacedPod({ namespace: NAMESPACE, labelSelector: `${LABEL}=${name}` });
  const running = pods.items.find((pod) => pod.status.phase === 'Running' && !pod.metadata.deletionTimestamp);
  const out = new PassThrough();
  const heard = out.toArray();
  await new Promise((resolve, reject) => {
    new k8s.Exec(config)
      .exec(NAMESPACE, running.metadata.name, 'worker', ['echo', greeting], out, null, null, false, resolve)
      .catch(reject);
  });
  return Buffer.concat(await heard).toString().trim();
}

async function tell(about, reason, note) {
  const { name, uid, resourceVersion } = about.metadata;
  const regarding = { apiVersion: `${GROUP}/v1`, kind: 'Queue', namespace: NAMESPACE, name, uid, resourceVersion };
  const body = {
    metadata: { generateName: `${name}-`, namespace: NAMESPACE }, type: 'Normal', reason, note, regarding,
    action: 'Reconcile', eventTime: new k8s.V1MicroTime(), reportingController: GROUP, reportingInstance: ME,
  };
  await events.createNamespacedEvent({ namespace: NAMESPACE, body });
}

async function finish(found) {
  const { name, resourceVersion } = found.metadata;
  await core.createNamespacedConfigMap({ namespace: NAMESPACE, body: { metadata: { name: `${name}-done` } } }).catch(code(409));
  const finalizers = found.metadata.finalizers.filter((one) => one !== FINALIZER);
  const merge = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch);
  const body = { metadata: { finalizers, resourceVersion } };
  await custom.patchNamespacedCustomObject({ ...queue(name), body }, merge).catch(code(404));
}

// --- the loop: informers put names into a set, one worker takes them out

const due = new Set();
const informer = (path, list, nameOf) => {
  const made = k8s.makeInformer(config, path, list);
  made.on('change', (object) => due.add(nameOf(object)));
  made.on('error', (error) => {
    console.log(`${path}: ${error}`);
    setTimeout(() => made.start(), 50);
  });
  made.on('connect', () => console.log(`${path}: connected`));
  return made;
};
// Every watch ends after a second, and the next one goes on from where it was.
const queues = informer(
  `/apis/${GROUP}/v1/namespaces/${NAMESPACE}/queues?timeoutSeconds=1`,
  () => custom.listNamespacedCustomObject(queue()),
  (found) => found.metadata.name,
);
const deployments = informer(
  `/apis/apps/v1/namespaces/${NAMESPACE}/deployments?timeoutSeconds=1`,
  () => apps.listNamespacedDeployment({ namespace: NAMESPACE }),
  (found) => found.metadata.labels?.[LABEL],
);

let stopped = false;
process.on('SIGTERM', () => (stopped = true));
while (!stopped && !(await leading())) await sleep(100);
console.log(`${ME} leads`);
await Promise.all([queues.start(), deployments.start()]);
let renewed = Date.now();
while (!stopped) {
  if (Date.now() - renewed > 300) {
    if (!(await leading())) throw new Error('somebody else leads');
    renewed = Date.now();
  }
  for (const name of [...due]) {
    due.delete(name);
    await reconcile(name).catch((error) => {
      console.log(`${name}: ${error.code ?? error}`);
      if (error.code !== 404) setTimeout(() => due.add(name), 50);
    });
  }
  await sleep(20);
}
process.exit(0);
