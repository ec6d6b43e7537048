import { Module } from '@nestjs/common';
import { APP_INTERCEPTOR } from '@nestjs/core';
import { AttachmentController } from './attachments/attachment.controller';
import { AuthController } from './auth/auth.controller';
import { TicketController } from './auth/ticket.controller';
import { CatalogController } from './catalog/catalog.controller';
import { CatalogService } from './catalog/catalog.service';
import { TenantController } from './tenants/tenant.controller';
import { EgressPolicyController } from './egress-policy/egress-policy.controller';
import { FilesController } from './files/files.controller';
import { AnswerInterceptor } from './http/answer';
import { operationsIn } from './http/operation';
import { OpenApi } from './openapi/open-api';
import { BindingController } from './projects/binding.controller';
import { ProjectController } from './projects/project.controller';
import { WorktreeController } from './projects/worktree.controller';
import { SecretController } from './secrets/secret.controller';
import { BlobController } from './session/blob.controller';
import { BlobService } from './session/blob.service';
import { ForkController } from './session/fork.controller';
import { QuestionController } from './session/question.controller';
import { RecoveryController } from './session/recovery.controller';
import { SessionController } from './session/session.controller';
import { SessionService } from './session/session.service';
import { VerifyController } from './session/verify.controller';
import { StreamController } from './stream/stream.controller';
import { SandboxController } from './sandboxes/sandbox.controller';
import { SystemController } from './system/system.controller';
import { SnapshotController } from './workspaces/snapshot.controller';
import { WorkspaceController } from './workspaces/workspace.controller';

export const CONTROLLERS = [
  SessionController,
  RecoveryController,
  QuestionController,
  ForkController,
  VerifyController,
  StreamController,
  BlobController,
  AttachmentController,
  FilesController,
  ProjectController,
  WorkspaceController,
  SnapshotController,
  SandboxController,
  WorktreeController,
  BindingController,
  CatalogController,
  SecretController,
  EgressPolicyController,
  TenantController,
  AuthController,
  TicketController,
  SystemController,
];

@Module({
  controllers: CONTROLLERS,
  providers: [
    SessionService,
    BlobService,
    CatalogService,
    { provide: OpenApi, useFactory: () => new OpenApi(operationsIn(CONTROLLERS)) },
    { provide: APP_INTERCEPTOR, useClass: AnswerInterceptor },
  ],
})
export class AppModule {}
